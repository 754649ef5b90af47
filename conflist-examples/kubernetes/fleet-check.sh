#!/bin/sh
# Runs `check` on every Linux node of a cluster, in the pods of the DaemonSet, for both names of the plugin, and prints what is in
# trouble:
#
#   fleet-check.sh [-o json] [-l SELECTOR] [NAMESPACE]
#
# `-l` or `--selector` asks only the nodes with these labels, for example those that a roll-out has reached: `-l azure-vnet-ipam=yes`.
#
# One line each: the node, the second name where it is that, and what is wrong. With `-o json` one array of every node and plugin:
# `node`, `plugin`, and either `check`, the report of `check -o json`, or `error`. NAMESPACE is that of the DaemonSet, kube-system if
# it is left out. Other arguments for kubectl, such as `--context prod`, go into KUBECTL. PARALLEL is how many nodes are asked at
# once (10), LIMIT how many seconds one has for a name (60).
#
# Exit status: 0 no node is in trouble, 1 some are, 2 the nodes or pods cannot be listed.
set -u

export KUBECTL="${KUBECTL:-kubectl}"
export LIMIT="${LIMIT:-60}"

# Notes what is known of a plugin: its line for the screen where it is in trouble, and its object.
note() { # node plugin key value line
    printf '{"node": "%s", "plugin": "%s", "%s": %s}\n' "$1" "$2" "$3" "$4" >"$WORK/$1.$2.json"
    [ -z "$5" ] || printf '%s: %s\n' "$1" "$5" >"$WORK/$1.$2.trouble"
}

note_error() { # node plugin why
    why=$(printf '%s' "$3" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')
    note "$1" "$2" error "\"not checked: $why\"" "${label:-}not checked: $3"
}

# Asks one pod.
if [ "${1:-}" = --node ]; then
    namespace=$2 node=$3 pod=$4 phase=$5
    if [ "$phase" != Running ]; then
        note_error "$node" azure-vnet-ipam "pod $pod is $phase"
        exit 0
    fi
    for plugin in azure-vnet-ipam azure-vnet-ipamv6; do
        [ "$plugin" = azure-vnet-ipam ] && label='' || label="$plugin: "
        # $KUBECTL may have arguments.
        # shellcheck disable=SC2086
        report=$(timeout "$LIMIT" $KUBECTL exec --namespace "$namespace" "$pod" --container node-loop -- \
            "/$plugin" check -o json 2>&1 </dev/null)
        status=$?
        summary=$(printf '%s\n' "$report" | sed -n 's/^  "summary": "\(.*\)",$/\1/p')
        if [ "$status" = 124 ]; then
            note_error "$node" "$plugin" "no answer within $LIMIT seconds"
        elif [ -z "$summary" ]; then
            note_error "$node" "$plugin" "$(printf '%s\n' "$report" | tail -n 1)"
        else
            # kubectl says what the status was behind the report.
            report=$(printf '%s\n' "$report" | sed -n '/^{/,/^}/p')
            [ "$status" = 0 ] && line='' || line=$label$summary
            note "$node" "$plugin" check "$report" "$line"
        fi
    done
    exit 0
fi

usage() {
    echo "usage: fleet-check.sh [-o json] [-l SELECTOR] [NAMESPACE]" >&2
    exit 2
}

json=false selector=kubernetes.io/os=linux
while [ $# -gt 0 ]; do
    case $1 in
    -o)
        [ "${2:-}" = json ] || usage
        json=true
        shift
        ;;
    -l | --selector)
        [ -n "${2:-}" ] || usage
        selector=$selector,$2
        shift
        ;;
    --selector=*) selector=$selector,${1#*=} ;;
    -*) usage ;;
    *) break ;;
    esac
    shift
done
[ $# -le 1 ] || usage
namespace=${1:-kube-system}
WORK=$(mktemp -d) || exit 2
export WORK
trap 'rm -rf "$WORK"' EXIT

# shellcheck disable=SC2086
$KUBECTL get nodes --selector "$selector" --no-headers \
    --output custom-columns=NODE:.metadata.name >"$WORK/nodes" &&
    $KUBECTL get pods --namespace "$namespace" --selector app.kubernetes.io/name=azure-vnet-ipam --no-headers \
        --output custom-columns=NODE:.spec.nodeName,POD:.metadata.name,PHASE:.status.phase >"$WORK/all" || exit 2
awk 'NR == FNR { nodes[$1]; next } $1 in nodes' "$WORK/nodes" "$WORK/all" >"$WORK/pods"

while read -r node; do
    awk -v node="$node" '$1 == node { found = 1 } END { exit !found }' "$WORK/pods" ||
        note_error "$node" azure-vnet-ipam "it has no pod of the DaemonSet"
done <"$WORK/nodes"
# Without any pod there is nothing to ask.
[ ! -s "$WORK/pods" ] || xargs -P "${PARALLEL:-10}" -L 1 sh "$0" --node "$namespace" <"$WORK/pods"

nodes=$(($(wc -l <"$WORK/nodes")))
find "$WORK" -name '*.trouble' -exec cat {} + | sort >"$WORK/lines"
trouble=$(($(cut -d: -f1 "$WORK/lines" | sort -u | wc -l)))
if $json; then
    # The objects are separated by commas, and an array without any is one too.
    find "$WORK" -name '*.json' | sort | xargs cat | awk 'BEGIN { print "[" } /^[{]"node"/ && n++ { print "," } 1; END { print "]" }'
else
    cat "$WORK/lines"
    echo "$trouble of $nodes nodes in trouble"
fi
[ "$nodes" -gt 0 ] || exit 2
[ "$trouble" = 0 ]
