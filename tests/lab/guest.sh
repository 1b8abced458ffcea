#!/usr/bin/env bash
# Inside the virtual machine, as process 1: brings the soft-RoCE device up, runs the job, reports its status, powers off.
# What it prints goes to the machine's console, which the user sees only when something fails.
# The variables lab_* come from vm.sh by way of the kernel's command line.
# shellcheck disable=SC2154

say() { echo "lab: $*"; }

power_off() {
    sync
    echo o >/proc/sysrq-trigger
    # The kernel takes it from here; process 1 must not end before.
    sleep 60
}

fail() {
    say "$*"
    power_off
}

# until_true SECONDS COMMAND...: devices appear some time after the call that makes them.
until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
    done
}

mount_the_rest() {
    ln -s /proc/self/fd /dev/fd
    ln -s fd/0 /dev/stdin
    ln -s fd/1 /dev/stdout
    ln -s fd/2 /dev/stderr
    mkdir -p /dev/shm /dev/pts
    mount -t tmpfs shm /dev/shm
    mount -t devpts devpts /dev/pts
    mount -t tmpfs run /run
    mount -t cgroup2 cgroup /sys/fs/cgroup || fail "cannot mount cgroup2"
    mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=524288 out "$lab_out" || fail "cannot mount $lab_out"
    [ -e "/lib/modules/$(uname -r)" ] || { mkdir -p /lib/modules && ln -s "$lab_modules" "/lib/modules/$(uname -r)"; }
}

start_device() {
    ip link set lo up
    if [ -n "$lab_end" ]; then
        until_true 120 ip link set eth0 name d0 || fail "cannot find the cable"
    else
        ip link add d0 type dummy || fail "cannot make the dummy interface"
    fi
    ip link set d0 mtu "$lab_mtu"
    ip address add "10.0.0.${lab_end:-1}/24" dev d0
    ip -6 address add "fd00::${lab_end:-1}/64" dev d0 nodad
    ip link set d0 up
    rdma link add rxe0 type rxe netdev d0 || fail "cannot make rxe0"
    until_true 120 test -c /dev/infiniband/uverbs0 || fail "/dev/infiniband/uverbs0 did not appear"
    until_true 120 test -c /dev/infiniband/rdma_cm || fail "/dev/infiniband/rdma_cm did not appear"
}

# port NAME: the device file of one of the virtio ports that vm.sh listens to.
port() {
    local file
    for file in /sys/class/virtio-ports/*/name; do
        [ "$(<"$file")" != "$1" ] || echo "/dev/$(basename "$(dirname "$file")")"
    done
}

# Only one process may open a port, so the job writes to pipes and two `cat`s own the ports. Whatever the job leaves
# running is killed with its control group: otherwise it would hold the pipes open and the machine with them.
run_job() {
    local group=/sys/fs/cgroup/job status out err
    mkdir $group
    exec {out}> >(exec cat >"$(port stdout)") {err}> >(exec cat >"$(port stderr)")
    (
        echo "$BASHPID" >$group/cgroup.procs
        exec bash "$lab_job" >&"$out" 2>&"$err" </dev/null {out}>&- {err}>&-
    )
    status=$?
    echo 1 >$group/cgroup.kill
    exec {out}>&- {err}>&-
    wait
    echo "$status" >"$(port status)"
}

mount_the_rest
start_device
VALKEY_RDMA_LAB_ACTIVE_MTU=$(ibv_devinfo -d rxe0 | awk '$1 == "active_mtu:" { print $2 }')
export VALKEY_RDMA_LAB_ACTIVE_MTU
# Valkey warns without it.
echo 1 >/proc/sys/vm/overcommit_memory
ulimit -l unlimited
ulimit -n 65536
hostname lab
say "rxe0 is up, active MTU $VALKEY_RDMA_LAB_ACTIVE_MTU"
run_job
power_off
