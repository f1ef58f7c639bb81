"""How editors and web pages colour the language: ``rules`` says it once, from the grammar's tables and
:mod:`schedlang.ops`; ``pygments`` and ``textmate`` say it again in the form of those two. No other part of schedlang
imports this one."""
