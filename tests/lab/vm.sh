#!/usr/bin/env bash
# Runs a command in a virtual machine with an RDMA device: soft-RoCE, `rxe0` on 10.0.0.1 and fd00::1.
#
# usage: vm.sh LAB COMMAND [ARGUMENT...]
#
# The command sees this machine's files (its changes vanish, except those in $VALKEY_RDMA_LAB_OUT), starts in the
# current directory, reads an empty standard input; its output and its exit status come back as if it ran here.
#
# VALKEY_RDMA_LAB_TIMEOUT  seconds until the machine is stopped (3600)
# VALKEY_RDMA_LAB_MEMORY   its memory in MiB (10240, or what this machine can spare)
# VALKEY_RDMA_LAB_MTU      the interface's MTU (1500: an RDMA MTU of 1024; 4500 gives 4096)
# VALKEY_RDMA_LAB_CABLE    END:SOCKET: the interface is one end (1 or 2) of a cable to another machine,
#                          which is 10.0.0.END; end 1 makes the socket and has to be started first
# VALKEY_RDMA_LAB_ACCEL    QEMU's accelerator (tcg,thread=multi: runs anywhere)
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/packages.sh"
lab=$(readlink -f "$1")
shift

timeout=${VALKEY_RDMA_LAB_TIMEOUT:-3600}
mtu=${VALKEY_RDMA_LAB_MTU:-1500}
accel=${VALKEY_RDMA_LAB_ACCEL:-tcg,thread=multi}

cable=${VALKEY_RDMA_LAB_CABLE:-}
end=${cable%%:*}
nic=()
case $end in
    "") ;;
    1) nic=(-netdev "stream,id=cable,server=on,addr.type=unix,addr.path=${cable#*:}") ;;
    2) nic=(-netdev "stream,id=cable,server=off,addr.type=unix,addr.path=${cable#*:}") ;;
    *) die "VALKEY_RDMA_LAB_CABLE=$cable is not 1:SOCKET or 2:SOCKET" ;;
esac
[ -z "$end" ] || nic+=(-device "virtio-net-pci,netdev=cable,mac=52:54:00:00:00:0$end")

spare_memory() {
    awk '$1 == "MemAvailable:" { spare = int($2 / 1024) - 1024; print (spare < 10240 ? spare : 10240) }' /proc/meminfo
}
memory=${VALKEY_RDMA_LAB_MEMORY:-$(spare_memory)}

# The job as a script, so that no quoting is lost on the way.
write_job() {
    local name
    for name in "${!VALKEY_RDMA_@}" "${!RUST_@}" PATH HOME LANG; do
        [ -z "${!name+x}" ] || printf 'export %s=%q\n' "$name" "${!name}"
    done
    printf 'export VALKEY_RDMA_LAB_OUT=%q\n' "$lab/out"
    printf 'cd %q\n' "$PWD"
    printf 'exec'
    printf ' %q' "$@"
    echo
}

# Each port is a named pipe or a file that QEMU opens for writing.
port() {
    echo "-chardev file,id=$1,path=$run/$1 -device virtserialport,chardev=$1,name=$1"
}

start_machine() {
    # tsc=reliable: an emulated processor's counters are one, but the kernel does not believe it, and would read the time
    # through a device, five times slower than a system call.
    # shellcheck disable=SC2046 # the ports are several words on purpose
    exec timeout --foreground --kill-after=5 "$timeout" qemu-system-x86_64 \
        -accel "$accel" -smp 2 -cpu max -M q35 -m "$memory" \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$lab/kernel/vmlinuz" -initrd "$lab/initramfs" \
        -append "console=ttyS0 panic=-1 quiet tsc=reliable lab_scripts=\"$here\" lab_job=\"$run/job\" lab_out=\"$lab/out\" lab_modules=\"$modules\" lab_mtu=$mtu lab_end=$end" \
        -serial "file:$run/console" \
        -device virtio-rng-pci "${nic[@]}" \
        -virtfs local,path=/,security_model=none,readonly=on,multidevs=remap,mount_tag=host \
        -virtfs "local,path=$lab/out,security_model=none,mount_tag=out" \
        -device virtio-serial-pci $(port stdout) $(port stderr) $(port status) \
        >"$run/qemu" 2>&1 </dev/null
}

explain_failure() {
    if [ "$1" -eq 124 ]; then
        echo "lab: stopped after $timeout seconds; VALKEY_RDMA_LAB_TIMEOUT sets the limit" >&2
        return
    fi
    cat "$run/qemu" >&2
    tail -n 40 "$run/console" 2>/dev/null >&2 || true
    echo "lab: the virtual machine ended before the command did; QEMU's and the kernel's last words are above" >&2
}

mkdir -p "$lab/out"
modules=$(echo "$lab"/kernel/lib/modules/*)
run=$(mktemp -d "$lab/run.XXXXXX")
machine=
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true; rm -rf "$run"' EXIT
trap 'exit 130' INT TERM HUP

write_job "$@" >"$run/job"
mkfifo "$run/stdout" "$run/stderr"
cat "$run/stdout" &
readers=$!
cat "$run/stderr" >&2 &
readers="$readers $!"

start_machine &
machine=$!
ended=0
wait "$machine" || ended=$?
machine=

status=$(cat "$run/status" 2>/dev/null || true)
# If QEMU never opened the pipes, their readers still wait: open and close them (`<>` never blocks).
: <>"$run/stdout" <>"$run/stderr"
# shellcheck disable=SC2086 # two process ids
wait $readers || true
if [ -z "$status" ]; then
    explain_failure "$ended"
    [ "$ended" -eq 124 ] && exit 124
    exit 125
fi
exit "$status"
