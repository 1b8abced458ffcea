//! What `--help` says after the flags: placeholders, tests, cells, examples.

pub(super) const AFTER_HELP: &str = "\
Placeholders in COMMAND:
  __rand_int__   a random number of 12 digits below -r, a new one for each occurrence
  __rand_1st__ to __rand_9th__
                 the same, but equal for all occurrences in one command
  __data__       a value of -d bytes, derived from the number before it in the command
A number before a command repeats it: multi ';' 3 incr counter ';' exec

Tests, in the order in which they run; ping and lrange are all of their kind:
  ping_inline ping_mbulk set get incr lpush rpush lpop rpop sadd hset spop zadd zpopmin
  lrange_100 lrange_300 lrange_500 lrange_600 mset mget xadd function_load fcall

Cells of --evidence: c30 is 30 connections, t64 64 tasks that share each (without it, one that drives it), then the bytes of a value:
  c30-512B c1-3B c1-t1-64B c1-t16-64B c1-t64-64B c1-t256-64B c1-t1-8K c1-t16-8K c1-t64-8K c1-t256-8K
  c64-t1-64B c64-t64-64B c64-t1-8K c64-t64-8K c1-100K
  c1-64K c32-64K c1-1M c32-1M c1-32M c32-32M: one task of the client library on each, through the ring; with -direct at its end, by
  direct transfers
Each runs SET and GET; some run GET once more at half of what the slower side reaches, where both sides' cores can be compared. The
server's processor time is that of INFO cpu. A cell that cannot run has its reason in the file, and the others run.
The file has: all figures, versions, this machine's processor, kernel, RDMA devices with driver and firmware, and limits, as the doctor
reports them; the server's version, system and some settings by INFO and CONFIG GET; the flags. It has no password and no user name,
and a host name or an address only with --with-addresses.

Examples:
  See it work on this machine, without an adapter or a server:
    valkey-rdma-benchmark --demo
  A real server over RDMA, 50 connections:
    valkey-rdma-benchmark --url rdma://192.168.1.1:6379 -t ping,set,get
  RDMA compared with TCP on the same server, with a plot:
    valkey-rdma-benchmark -u rdma://192.168.1.1:6379 --compare valkey://192.168.1.1:6379 -t set,get --plot gain.svg
  What TLS costs on the same server:
    valkey-rdma-benchmark -u 'valkeys://store:6380?ca=ca.crt' --compare valkey://store:6379 -t set,get
  The highest rate with a p99 below 1 ms:
    valkey-rdma-benchmark -h 192.168.1.1 --rdma -t set,get --sweep --target-p99 1
  Figures of two machines with adapters to publish, in about 25 minutes; and the same in one minute, to try it:
    valkey-rdma-benchmark -u rdma://192.168.1.1:6379 --evidence evidence.json
    valkey-rdma-benchmark -u rdma://192.168.1.1:6379 --evidence trial.json --cells c30-512B,c1-t64-64B,c1-1M --rounds 5 --duration 1
  Values of 1 MiB by direct transfers, compared with the stream:
    valkey-rdma-benchmark -u rdma://192.168.1.1:6380 --direct --compare rdma://192.168.1.1:6380 --compare-with tasks=1 -t set,get -c 1 -d 1048576
  One connection shared by 50 tasks, 64 KiB values, a million random keys:
    valkey-rdma-benchmark -h 192.168.1.1 --rdma -c 1 --tasks-per-connection 50 -d 65536 -r 1000000 -t set,get

Exit status: 0 if every reply was right; 1 if a reply was wrong or missing, or the server could not be reached;
2 for a wrong flag; 130 if interrupted.";
