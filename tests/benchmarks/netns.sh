#!/usr/bin/env bash
# Several "hosts" on one machine: network namespaces on a bridge, torchrun on each, and the torch back end between them.
#
#   netns.sh [HOSTS...]          run and check with so many hosts, 2 ranks each (default: 2 4)
#   RATE=400mbit netns.sh 4      the same with every host's link shaped, both ways
#   SLOW=100mbit ...             another rate for the last host
#   DEAL=1 ...                   ranks dealt round the hosts: rank r on host r mod HOSTS, not on host r / RANKS
#   netns.sh 4 -- COMMAND ...    instead: COMMAND by torchrun on 4 hosts, e.g. -m schedlang bench torch --sizes 16MiB
#
# Root, Linux, iproute2; else it ends with 77. It leaves nothing behind. PYTHON names the interpreter (default: python3
# of the PATH), RANKS the ranks on each host.
set -euo pipefail

PYTHON=${PYTHON:-python3} RANKS=${RANKS:-2} RATE=${RATE:-} SLOW=${SLOW:-} DEAL=${DEAL:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
tag=sl$$            # names that nobody else has
hosts=0 nodes=0

cannot() { echo "netns.sh: this needs $1" >&2; exit 77; }
[ "$(id -u)" = 0 ] || cannot root
command -v ip > /dev/null || cannot iproute2
{ ip netns add "$tag" && ip netns del "$tag"; } || cannot "leave to make network namespaces"
work=$(mktemp -d)

down() {
    for ((h = 0; h < hosts; h++)); do
        # Whatever still runs there, by what the kernel lists for this namespace.
        ip netns pids "$tag-$h" 2> /dev/null | xargs -r kill -9 2> /dev/null || true
        ip netns del "$tag-$h" 2> /dev/null || true
        ip link del "$tag-v$h" 2> /dev/null || true
    done
    ip link del "$tag-br" 2> /dev/null || true
    hosts=0
}
trap 'trap "" INT TERM; down; rm -rf "$work"' EXIT     # nothing stops the cleaning up
trap 'exit 130' INT TERM

shape() {           # a device, in a namespace ("" for ours), to a rate ("" for none)
    [ -z "$3" ] || ${1:+ip netns exec "$1"} tc qdisc replace dev "$2" root tbf rate "$3" burst 256kb latency 100ms
}

up() {
    ip link add "$tag-br" type bridge
    ip link set "$tag-br" up
    local rate=$RATE
    for ((h = 0; h < $1; h++)); do
        hosts=$((h + 1))
        [ "$hosts" -lt "$1" ] || rate=${SLOW:-$RATE}
        ip netns add "$tag-$h"
        ip link add "$tag-v$h" type veth peer name e0 netns "$tag-$h"
        ip link set "$tag-v$h" master "$tag-br" up
        ip -n "$tag-$h" addr add "10.77.0.$((h + 1))/24" dev e0
        ip -n "$tag-$h" link set e0 up
        ip -n "$tag-$h" link set lo up
        shape "$tag-$h" e0 "$rate"
        shape "" "$tag-v$h" "$rate"
    done
}

# torchrun on every host, the words after it on each; what rank 0 says is shown, what others say where one fails.
# Ranks follow the nodes of torchrun: one a host, or, to deal them round, one a rank.
everywhere() {
    local pids=() status=0 each=$RANKS i
    [ -z "$DEAL" ] || each=1
    nodes=$((hosts * RANKS / each))
    for ((i = 0; i < nodes; i++)); do
        # The rendezvous is by address: in these namespaces no name leads anywhere.
        (cd "$root" && exec ip netns exec "$tag-$((i % hosts))" env GLOO_SOCKET_IFNAME=e0 OMP_NUM_THREADS=1 \
            PYTHONPATH="$root" "$PYTHON" -m torch.distributed.run --nnodes "$nodes" --node-rank "$i" \
            --nproc-per-node "$each" --master-addr 10.77.0.1 --master-port 29511 \
            --local-addr "10.77.0.$((i % hosts + 1))" "$@") > "$work/out$i" 2> "$work/err$i" &
        pids+=($!)
    done
    for i in "${!pids[@]}"; do
        wait "${pids[$i]}" || { status=1; echo "host $((i % hosts)):"; cat "$work/err$i"; } >&2
    done
    cat "$work/out0"
    return $status
}

check() {
    local n=$((hosts * RANKS)) wrong=0 schedule i
    # What can go wrong between hosts does so with any schedule; all of them are tested on one.
    for schedule in "allreduce/ring.sched" "allreduce/hierarchical.sched -p nodes=$hosts -p gpus=$RANKS" \
        "alltoall/direct.sched"; do
        # shellcheck disable=SC2086  # parameters are words of their own
        everywhere -m schedlang run schedlang:$schedule --ranks "$n" --backend torch --device cpu --size 256KiB \
            --check || wrong=1
        for ((i = 1; i < nodes; i++)); do
            [ ! -s "$work/out$i" ] || { echo "host $((i % hosts)) speaks:"; cat "$work/out$i"; wrong=1; }
        done
    done
    if everywhere -m schedlang run schedlang:allreduce/ring.sched --ranks $((n + 1)) --backend torch 2> /dev/null; then
        echo "a world of another size is not refused" >&2
        wrong=1
    fi
    return $wrong
}

counts=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do counts+=("$1"); shift; done
[ $# -gt 0 ] && shift
[ ${#counts[@]} -gt 0 ] || counts=(2 4)
failed=0
for count in "${counts[@]}"; do
    echo "== $count hosts of $RANKS ranks${RATE:+, $RATE}${SLOW:+, the last one $SLOW}${DEAL:+, ranks dealt round}"
    up "$count"
    if [ $# -gt 0 ]; then everywhere "$@" || failed=1; else check || failed=1; fi
    down
done
exit $failed
