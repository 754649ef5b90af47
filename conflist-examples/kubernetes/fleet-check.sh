#!/bin/sh
# Runs `check` on every Linux node of a cluster, in the pods of the DaemonSet, and prints the nodes in trouble:
#
#   fleet-check.sh [NAMESPACE]
#
# One line each: the node and what is wrong. NAMESPACE is that of the DaemonSet, kube-system if it is left out. Other arguments for
# kubectl, such as `--context prod`, go into KUBECTL. PARALLEL is how many nodes are asked at once (10), LIMIT how many seconds one
# has (60).
#
# Exit status: 0 no node is in trouble, 1 some are, 2 the nodes or pods cannot be listed.
set -u

export KUBECTL="${KUBECTL:-kubectl}"
export LIMIT="${LIMIT:-60}"

# Asks one pod. Prints a line if its node is in trouble.
if [ "${1:-}" = --node ]; then
    namespace=$2 node=$3 pod=$4 phase=$5
    if [ "$phase" != Running ]; then
        echo "$node: not checked: pod $pod is $phase"
        exit
    fi
    # $KUBECTL may have arguments.
    # shellcheck disable=SC2086
    report=$(timeout "$LIMIT" $KUBECTL exec --namespace "$namespace" "$pod" --container node-loop -- \
        /azure-vnet-ipam check -o json 2>&1 </dev/null)
    status=$?
    summary=$(printf '%s\n' "$report" | sed -n 's/^  "summary": "\(.*\)",$/\1/p')
    if [ "$status" = 124 ]; then
        echo "$node: not checked: no answer within $LIMIT seconds"
    elif [ -z "$summary" ]; then
        echo "$node: not checked: $(printf '%s\n' "$report" | tail -n 1)"
    elif [ "$status" != 0 ]; then
        echo "$node: $summary"
    fi
    exit
fi

namespace=${1:-kube-system}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2086
$KUBECTL get nodes --selector kubernetes.io/os=linux --no-headers \
    --output custom-columns=NODE:.metadata.name >"$work/nodes" &&
    $KUBECTL get pods --namespace "$namespace" --selector app.kubernetes.io/name=azure-vnet-ipam --no-headers \
        --output custom-columns=NODE:.spec.nodeName,POD:.metadata.name,PHASE:.status.phase >"$work/pods" || exit 2

while read -r node; do
    awk -v node="$node" '$1 == node { found = 1 } END { exit !found }' "$work/pods" ||
        echo "$node: not checked: it has no pod of the DaemonSet"
done <"$work/nodes" >"$work/trouble"
# A line of several writers stays whole, as it is short. Without any pod there is nothing to ask.
[ ! -s "$work/pods" ] || xargs -P "${PARALLEL:-10}" -L 1 sh "$0" --node "$namespace" <"$work/pods" >>"$work/trouble"

sort "$work/trouble"
nodes=$(($(wc -l <"$work/nodes")))
trouble=$(($(wc -l <"$work/trouble")))
echo "$trouble of $nodes nodes in trouble"
[ "$nodes" -gt 0 ] || exit 2
[ "$trouble" = 0 ]
