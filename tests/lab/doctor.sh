#!/usr/bin/env bash
# The doctor, in the lab: what it says of a machine with soft-RoCE, with too little memlock, with a wrong GID, without a device
# and without the kernel module; a real server step by step; check and mesh between processes on kernel verbs and between two
# machines; and what it says when the cable between these is cut. Each finding has to be the right one, and its remedy is tried.
#
# usage: tests/lab/doctor.sh LAB DOCTOR [two]      on the host: all of it, in virtual machines; or what needs two machines
#        doctor.sh alone DOCTOR                    in one: everything that needs one machine
#        doctor.sh far|near DOCTOR                 in each of two: the cable
#        doctor.sh device_files|addresses DOCTOR   in one: these parts of `alone`
#        doctor.sh beside DOCTOR                   in one, alone on the host: figures of perftest beside ours
# shellcheck disable=SC2317 # Functions are called by name.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"

failed=0

# expect STATUS TEXT COMMAND...: runs the command; its status and a line of its output have to be these.
expect() {
    local status=$1 text=$2 got out
    shift 2
    out=$("$@" 2>&1)
    got=$?
    if [ "$got" -eq "$status" ] && grep -qF -- "$text" <<<"$out"; then
        printf 'passed  %s: %s\n' "$*" "$text"
    else
        printf 'FAILED  %s: status %s, expected %s with %q; it printed:\n%s\n' "$*" "$got" "$status" "$text" "$out"
        failed=1
    fi
}

# As a user is: without the capabilities that make root exempt from limits.
as_user() { setpriv --inh-caps=-all --bounding-set=-all "$@"; }

machine() {
    # The host whose files these are may be a container; this machine is none.
    rm -f /.dockerenv
    echo "== a machine with soft-RoCE"
    "$doctor" --host 10.0.0.1
    expect 0 "a connection to itself at 10.0.0.1 carried bytes" "$doctor"
    expect 0 "10.0.0.1 from 10.0.0.1, rxe0 port 1, GID 1" "$doctor" --host 10.0.0.1
    expect 1 "RDMA has no loopback address: use this machine's own, 10.0.0.1 (rxe0)" "$doctor" --host 127.0.0.1

    echo "== memlock 64 KiB"
    (
        ulimit -l 64
        expect 0 "64 KiB, which this process may exceed (CAP_IPC_LOCK)" "$doctor"
        expect 1 "PROBLEM  memlock       64 KiB: one connection pins 3.1 MiB" as_user "$doctor"
        expect 1 "\`ulimit -l unlimited\`" as_user "$doctor"
        expect 1 "no connection to itself at 10.0.0.1: cannot register" as_user "$doctor"
        exit $failed
    ) || failed=1
    # The remedy.
    (
        ulimit -l unlimited
        expect 0 "ok       memlock       unlimited" as_user "$doctor"
        exit $failed
    ) || failed=1

    echo "== the port is down"
    ip link set d0 down
    expect 1 "\`ip link set d0 up\`" "$doctor"
    ip link set d0 up
    until_true grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state
    # With the interface its IPv6 address has gone, and its IPv4 address stays.
    expect 0 "RDMA can work here" "$doctor"
}

server() {
    echo "== a real server"
    start_valkey "$VALKEY_RDMA_LAB_DIR/valkey/9.1" 10.0.0.1 /tmp/doctor-server.log
    "$doctor" --url rdma://10.0.0.1:6379
    expect 0 "register" "$doctor" --url rdma://10.0.0.1:6379
    expect 0 "Valkey $(basename "$(readlink -f "$VALKEY_RDMA_LAB_DIR/valkey/9.1")"), standalone" "$doctor" --url rdma://10.0.0.1:6379
    expect 0 "name=rdma,bind=10.0.0.1,port=6379" "$doctor" --url rdma://10.0.0.1:6379
    expect 0 "name=rdma,bind=10.0.0.1,port=6379" "$doctor" --url valkey://10.0.0.1:6379
    expect 1 "GID index 7 of RDMA device rxe0 cannot be used" "$doctor" --url 'rdma://10.0.0.1:6379?gid=7'
    expect 1 "in use: 0, 1" "$doctor" --url 'rdma://10.0.0.1:6379?gid=7'
    expect 0 "answers over rdma" "$doctor" --url 'rdma://10.0.0.1:6379?gid=1'
    expect 1 "10.0.0.1:6380 refused the connection" "$doctor" --url rdma://10.0.0.1:6380
    # It holds the device, which is removed later.
    kill "$valkey"
    wait "$valkey"
}

# As a container without `--device` has it: the device in /sys, and no device file.
without_device_files() { unshare -m sh -c 'mount -t tmpfs none /dev/infiniband && exec "$@"' - "$@"; }

as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

device_files() {
    local file
    echo "== no device files, and no permission"
    expect 1 "RDMA device rxe0 cannot be used here: /dev/infiniband/rdma_cm is missing; in a container, pass" \
        without_device_files "$doctor" --url rdma://10.0.0.1:6379
    expect 1 "/dev/infiniband/rdma_cm is missing" without_device_files "$doctor"
    for file in /dev/infiniband/rdma_cm /dev/infiniband/uverbs0; do
        chmod 600 "$file"
        expect 1 "RDMA device rxe0 cannot be used here: this user may not open $file: Permission denied" \
            as_nobody "$doctor" --url rdma://10.0.0.1:6379
        expect 1 "this user may not open $file: Permission denied" as_nobody "$doctor"
        expect 1 "\`chmod 0666 /dev/infiniband/rdma_cm /dev/infiniband/uverbs*\`" as_nobody "$doctor"
        # The remedy.
        chmod 0666 /dev/infiniband/rdma_cm /dev/infiniband/uverbs*
    done
}

# The link-local address of d0, without its interface.
link_local() { ip -6 -brief address show dev d0 scope link | grep -o 'fe80[^/]*'; }

addresses() {
    local own
    echo "== a server on another address"
    ip address add 10.0.0.2/24 dev d0
    start_valkey "$VALKEY_RDMA_LAB_DIR/valkey/9.1" 10.0.0.1 /tmp/doctor-server.log
    expect 1 "its server may listen on another address of that host" "$doctor" --url rdma://10.0.0.2:6379
    expect 1 "RDMA on 10.0.0.1 only, not on 10.0.0.2" "$doctor" --url rdma://10.0.0.2:6379
    expect 1 "; stop the program that listens there" "$doctor" listen 10.0.0.1:6379
    kill "$valkey"
    wait "$valkey"
    ip address del 10.0.0.2/24 dev d0

    echo "== a link-local address"
    until_true link_local >/dev/null
    own=$(link_local)
    start_valkey "$VALKEY_RDMA_LAB_DIR/valkey/9.1" "$own%d0:6379" /tmp/doctor-server.log --bind "$own%d0"
    for zone in %d0 %25d0 "%$(cat /sys/class/net/d0/ifindex)"; do
        expect 0 "answers over rdma" "$doctor" --url "rdma://[$own$zone]:6379"
    done
    expect 0 "answers over tcp" "$doctor" --url "valkey://[$own%d0]:6379"
    # Over RDMA, the kernel finds this machine's own address without the interface.
    expect 1 "$own is link-local: add the interface that leads to it" "$doctor" --url "valkey://[$own]:6379"
    expect 1 "no network interface \`d9\`" "$doctor" --url "rdma://[$own%d9]:6379"
    kill "$valkey"
    wait "$valkey"
}

# far_cpu event|busy: the processor of the end that answers. The end that leads has 0. Ends that sleep share it: on a busy host it takes
# milliseconds until an emulated processor that has slept runs again, by which both programs' figures would differ at random.
far_cpu() { [ "$1" = event ] && echo 0 || echo 1; }

# theirs event|busy COLUMN SIZE PROGRAM OPTION...: a figure that perftest measures between two processes.
theirs() {
    local cpu column=$2 size=$3 server
    cpu=$(far_cpu "$1")
    shift 3
    # That of the last one says that it waits, too. Line by line: perftest would keep the line until it ends.
    rm -f /tmp/perftest-server.txt
    timeout 900 stdbuf -oL taskset -c "$cpu" "$@" -d rxe0 -F -s "$size" -n 100 >/tmp/perftest-server.txt 2>&1 &
    server=$!
    until_true grep -qs 'Waiting for client' /tmp/perftest-server.txt
    timeout 900 taskset -c 0 "$@" -d rxe0 -F -s "$size" -n 100 10.0.0.1 | awk -v size="$size" -v column="$column" '$1 == size { print $column }'
    wait "$server"
}

# ours latency|rate SIZE OPERATION event|busy: the same figure of the doctor: the median in microseconds, or MiB/s.
ours() {
    taskset -c 0 "$doctor" check "10.0.0.1:700$(far_cpu "$4")" --time 400ms --sizes "$2" --operations "$3" --polling "$4" --one-way --json |
        python3 -c '
import json, sys
for row in json.load(sys.stdin)["checks"][0]["found"]["rows"]:
    figures = row["figures"]
    if sys.argv[1] == "latency" and figures["latency"] and row["run"]["operation"] != "tcp":
        print("%.1f" % (figures["latency"]["p50"] / 1e3))
    if sys.argv[1] == "rate" and figures["rate"] and row["run"]["operation"] != "tcp":
        print("%.1f" % (figures["rate"]["bytes"] / 2**20))' "$1"
}

# calls COMMAND...: how many system calls it makes, with those of its threads.
calls() {
    strace -f -c -U calls,name -o /tmp/strace.txt "$@" >/tmp/strace-output.txt 2>&1
    awk '$2 == "total" { print $1 }' /tmp/strace.txt
}

# Ours and perftest's figures in turn: median (lowest to highest).
beside() {
    local cpu listeners=() round rows name size
    for cpu in 0 1; do
        taskset -c "$cpu" "$doctor" listen "10.0.0.1:700$cpu" >/tmp/doctor-listen.txt 2>&1 &
        listeners+=($!)
        until_true grep -q '^ready' /tmp/doctor-listen.txt
    done
    rows=("latency 64 send event" "latency 64 send busy" "latency 64 read busy" "rate 65536 send busy" "rate 65536 write busy" "rate 65536 read busy")
    for ((round = 0; round < ${VALKEY_RDMA_LAB_ROUNDS:-5}; round++)); do
        for name in "${rows[@]}"; do
            # shellcheck disable=SC2086 # several words
            set -- $name
            ours "$@" >>"/tmp/ours $name"
            size=$2
            case $name in
                *event) theirs event 5 "$size" "ib_$3_lat" -e ;;
                latency*) theirs busy 5 "$size" "ib_$3_lat" ;;
                rate*) theirs busy 4 "$size" "ib_$3_bw" ;;
            esac >>"/tmp/theirs $name"
        done
    done
    summary() { sort -g "$1" | awk '{ v[NR] = $1 } END { printf "%s (%s to %s)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }
    echo "== beside perftest: microseconds of 64 bytes, or MiB/s of 64 KiB; $round rounds, median (lowest to highest)"
    for name in "${rows[@]}"; do
        printf '%-24s ours %-32s perftest %s\n' "$name" "$(summary "/tmp/ours $name")" "$(summary "/tmp/theirs $name")"
    done
    echo "== system calls of the end that leads, while it sends 64 bytes with events"
    local total
    total=$(calls "$doctor" check 10.0.0.1:7000 --time 2s --sizes 64 --operations send --polling event --one-way --no-tcp --json)
    python3 -c '
import json, sys
rows = json.load(open("/tmp/strace-output.txt"))["checks"][0]["found"]["rows"]
print("ours:", sys.argv[1], "in all for", sum(row["figures"]["messages"] for row in rows if not row["run"]["stream"]), "round trips and",
      sum(row["figures"]["messages"] for row in rows if row["run"]["stream"]), "messages in a stream")' "$total"
    head -n 14 /tmp/strace.txt
    rm -f /tmp/perftest-server.txt
    stdbuf -oL ib_send_lat -e -d rxe0 -F -s 64 -n 500 >/tmp/perftest-server.txt 2>&1 &
    local server=$!
    until_true grep -qs 'Waiting for client' /tmp/perftest-server.txt
    echo "perftest: $(calls ib_send_lat -e -d rxe0 -F -s 64 -n 500 10.0.0.1) in all for 500 round trips"
    head -n 14 /tmp/strace.txt
    wait "$server"
    kill -INT "${listeners[@]}"
}

fabric() {
    echo "== check between two processes"
    "$doctor" listen 10.0.0.1:7000 >/tmp/doctor-listen.txt 2>&1 &
    local listener=$!
    until_true grep -q '^ready' /tmp/doctor-listen.txt
    "$doctor" check 10.0.0.1:7000 --time 100ms --sizes 64,64K
    expect 0 "buffers match: 96 compared" \
        "$doctor" check 10.0.0.1:7000 --time 10ms --queue-pairs 4 --sizes 1,4K,1M,8M --polling event \
        --patience 60s
    expect 1 "GID index 7 of RDMA device rxe0 cannot be used" "$doctor" check 10.0.0.1:7000 --gid 7
    expect 1 "not \`rxe9\`" "$doctor" check 10.0.0.1:7000 --device rxe9
    expect 1 "give both the same --device" "$doctor" check 10.0.0.1:7000 --device emulated
    kill -INT "$listener"
    wait "$listener" || { echo "FAILED  the listener's status is $?"; failed=1; }

    "$doctor" listen 10.0.0.1:7000 --corrupt >/tmp/doctor-listen.txt 2>&1 &
    listener=$!
    until_true grep -q '^ready' /tmp/doctor-listen.txt
    expect 1 "WRITE and READ back of 4 KiB on queue pair 0: byte 2048 is" \
        "$doctor" check 10.0.0.1:7000 --time 5ms --sizes 4K
    kill -INT "$listener"
    wait "$listener" || { echo "FAILED  the listener's status is $?"; failed=1; }

    echo "== a mesh of three processes"
    local mesh=10.0.0.1:7001,10.0.0.1:7002,10.0.0.1:7003 one two
    "$doctor" --mesh "$mesh" >/tmp/mesh-1.txt 2>&1 &
    one=$!
    "$doctor" --mesh "$mesh" >/tmp/mesh-2.txt 2>&1 &
    two=$!
    "$doctor" --mesh "$mesh"
    expect 0 "3 of 3 pairs work." cat /tmp/mesh-1.txt
    { wait "$one" && wait "$two"; } || { echo "FAILED  a process of the mesh: status $?"; failed=1; }
}

without_device() {
    echo "== the device is removed, then made by the commands that the doctor gives"
    rdma link delete rxe0
    "$doctor"
    expect 1 "this machine has no RDMA device" "$doctor"
    expect 1 "\`rdma link add rxe0 type rxe netdev d0\`" "$doctor"
    expect 1 "no RDMA device on this machine" "$doctor" listen 10.0.0.1:7000
    rdma link add rxe0 type rxe netdev d0
    until_true test -c /dev/infiniband/uverbs0
    expect 0 "RDMA can work here" "$doctor"

    echo "== the kernel's module for user space is removed"
    # The kernel would load it again as soon as librdmacm asks for its device file.
    echo 'install rdma_ucm /bin/false' >/etc/modprobe.d/doctor.conf
    rdma link delete rxe0
    modprobe -r rdma_rxe rdma_ucm
    expect 1 "not loaded: rdma_ucm" "$doctor"
    expect 1 "\`modprobe -a rdma_ucm\`" "$doctor"
    expect 1 "\`modprobe rdma_rxe\`" "$doctor"
    rm /etc/modprobe.d/doctor.conf
    modprobe -a rdma_ucm
    modprobe rdma_rxe
    rdma link add rxe0 type rxe netdev d0
    until_true test -c /dev/infiniband/rdma_cm
    expect 0 "RDMA can work here" "$doctor"
}

# A mesh of one process on each of two machines. On a busy host, minutes pass until the second one has booted.
mesh_of_two() { "$doctor" --mesh 10.0.0.1:7100,10.0.0.2:7100 --wait 600s; }

# Two machines: the check runs, then the cable is cut.
far() {
    expect 0 "1 of 1 pairs work." mesh_of_two
    [ "$failed" -eq 0 ] || return
    "$doctor" listen 10.0.0.1:7000 >/tmp/far.txt 2>&1 &
    local listener=$!
    # The session that the cable cut: the last one of the near end.
    until_true grep -qE "(during |: )SEND of 64 B" /tmp/far.txt || { echo "FAILED  the far end has not noticed"; failed=1; }
    cat /tmp/far.txt
    kill -INT "$listener"
}

near() {
    local pid
    echo "== a mesh of two machines"
    mesh_of_two | tee /tmp/mesh.txt
    expect 0 "1 of 1 pairs work." cat /tmp/mesh.txt
    reached() { "$doctor" check 10.0.0.1:7000 --sizes 1 --time 1ms --patience 2s >/dev/null 2>&1; }
    until_true reached || { echo "FAILED  the far machine does not answer"; exit 1; }
    echo "== two machines"
    "$doctor" check 10.0.0.1:7000 --time 300ms --sizes 64,64K --polling event
    expect 0 "buffers match" "$doctor" check 10.0.0.1:7000 --time 20ms --sizes 1M --polling event

    echo "== the cable is cut during a check"
    "$doctor" check 10.0.0.1:7000 --time 30s --sizes 64 --operations send --polling event --patience 5s >/tmp/near.txt 2>&1 &
    pid=$!
    # It measures once it has its queue pair.
    until_true bash -c 'rdma resource show qp | grep -q "type RC state RTS"'
    ip link set d0 down
    wait "$pid"
    status=$?
    cat /tmp/near.txt
    expect 0 "error: " cat /tmp/near.txt
    [ "$status" -eq 1 ] || { echo "FAILED  its status is $status"; failed=1; }
    expect 1 "\`ip link set d0 up\`" "$doctor"
}

case ${1:-} in
    alone | far | near | beside | device_files | addresses)
        doctor=$2
        case $1 in
            alone) machine; device_files; server; addresses; fabric; without_device ;;
            *) "$1" ;;
        esac
        exit $failed
        ;;
esac

lab=${1:?usage: doctor.sh LAB DOCTOR}
doctor=$(readlink -f "${2:?usage: doctor.sh LAB DOCTOR}")
VALKEY_RDMA_LAB_DIR=$(readlink -f "$lab")
export VALKEY_RDMA_LAB_DIR
[ "${3:-}" = two ] || "$here/vm.sh" "$lab" "$here/doctor.sh" alone "$doctor" || failed=1

"$here/cable.sh" "$lab" "$here/doctor.sh far $doctor" "$here/doctor.sh near $doctor" || failed=1
exit $failed
