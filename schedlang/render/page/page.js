"use strict";
// Steps through a schedule: marks a step in the drawing and shows who holds what after it. What it shows is the JSON in
// #data; `#step=3` in the address chooses a step.
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const drawing = byId("drawing");
  const marked = [...drawing.querySelectorAll("[data-step]")];
  const labels = drawing.querySelector(".labels");
  const slider = byId("slider");
  const last = data.steps.length - 1;      // positions: -1 before the first step shown, k after step k of those shown
  let at = -1;
  let timer = 0;

  const make = (name, text, parent) => {
    const element = document.createElement(name);
    element.textContent = text;
    parent.append(element);
    return element;
  };

  const head = make("tr", "", byId("head"));
  make("th", "", head);
  for (const column of data.columns) make("th", column, head).scope = "col";
  const cells = data.ranks.map((name) => {
    const row = make("tr", "", byId("body"));
    make("th", name, row).scope = "row";
    return data.columns.map(() => make("td", data.nothing, row));
  });
  const lines = data.sources.map((source) => {
    make("h3", source.path, byId("sources"));
    const text = make("pre", "", byId("sources"));
    text.className = "source";
    return source.lines.map((line) => make("span", line || " ", text));
  });
  byId("source-panel").hidden = !data.sources.length;

  function show(position) {
    at = Math.min(Math.max(position, -1), last);
    const step = data.steps[at];
    const number = data.first + at;
    byId("now").textContent = step ? step.name : data.begin;
    slider.value = at;
    slider.setAttribute("aria-valuetext", step ? step.name : data.begin);
    byId("back").disabled = byId("to-start").disabled = at < 0;
    byId("on").disabled = byId("to-end").disabled = at === last;
    drawing.classList.toggle("stepping", at >= 0);
    for (const element of marked) element.classList.toggle("now", at >= 0 && Number(element.dataset.step) === number);
    state();
    byId("operations").replaceChildren();
    for (const text of step ? step.operations : []) make("li", text, byId("operations"));
    byId("operations-panel").hidden = !(step && step.operations.length);
    source(step ? step.lines : []);
    follow(number);
  }

  function state() {
    for (const row of cells) for (const cell of row) { cell.textContent = data.nothing; cell.className = ""; }
    for (const [rank, column, text] of data.start) cells[rank][column].textContent = text;
    data.steps.slice(0, at + 1).forEach((step, k) => {
      for (const [rank, column, text] of step.changes) {
        cells[rank][column].textContent = text;
        if (k === at) cells[rank][column].className = "changed";
      }
    });
    if (at === last && data.complete) for (const [rank, column, why] of data.wrong) {
      cells[rank][column].classList.add("wrong");
      cells[rank][column].title = why;
    }
  }

  function source(here) {
    for (const file of lines) for (const line of file) line.className = "";
    for (const [file, line] of here) if (lines[file][line - 1]) lines[file][line - 1].className = "here";
    const first = here.length && lines[here[0][0]][here[0][1] - 1];
    if (!first) return;
    const box = byId("sources");
    const top = first.offsetTop - box.offsetTop;
    if (top < box.scrollTop || top + 20 > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 3;
  }

  function follow(number) {
    const column = drawing.querySelector(`.column[data-step="${number}"] rect`);
    if (!column || at < 0) return;
    const x = column.x.baseVal.value, width = column.width.baseVal.value;
    if (x - labels.getBBox().width < drawing.scrollLeft || x + width > drawing.scrollLeft + drawing.clientWidth)
      drawing.scrollLeft = x - (drawing.clientWidth - width) / 2;
  }

  function go(position) {
    show(position);
    history.replaceState(null, "", at < 0 ? "#start" : `#step=${data.first + at}`);
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    byId("play").textContent = "Play";
  }

  function play() {
    if (timer) { stop(); return; }
    if (at === last) go(-1);
    byId("play").textContent = "Pause";
    timer = setInterval(() => { go(at + 1); if (at === last) stop(); }, 1000);
  }

  function fromAddress() {
    const wanted = /^#step=(\d{1,9})$/.exec(location.hash);
    const position = wanted ? Number(wanted[1]) - data.first : -1;
    show(position > last ? -1 : position);
  }

  byId("to-start").addEventListener("click", () => { stop(); go(-1); });
  byId("back").addEventListener("click", () => { stop(); go(at - 1); });
  byId("on").addEventListener("click", () => { stop(); go(at + 1); });
  byId("to-end").addEventListener("click", () => { stop(); go(last); });
  byId("play").addEventListener("click", play);
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  for (const column of drawing.querySelectorAll(".column"))
    column.addEventListener("click", () => { stop(); go(Number(column.dataset.step) - data.first); });
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === slider) return;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: -1, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    stop();
    go(to);
  });
  drawing.addEventListener("scroll", () => labels.setAttribute("transform", `translate(${drawing.scrollLeft} 0)`));
  window.addEventListener("hashchange", () => { stop(); fromAddress(); });
  slider.max = last;
  byId("stepper").hidden = false;
  fromAddress();
})();
