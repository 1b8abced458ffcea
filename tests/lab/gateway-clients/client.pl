# Redis.pm. Usage: client.pl SOCKET
use strict;
use warnings;
use POSIX ();
use Redis;
use Time::HiRes 'sleep';

my $socket = shift;
sub client { Redis->new(sock => $socket, name => "suite") }

# A reply as text, with its arrays in brackets.
sub flat { join " ", map { ref $_ eq "ARRAY" ? "[" . flat(@$_) . "]" : $_ // "nil" } @_ }

sub same {
    my ($wanted, @got) = @_;
    my $got = flat(@got);
    $got eq $wanted or die substr($got, 0, 200) . " instead of " . substr($wanted, 0, 200) . ", line " . (caller)[2] . "\n";
}

my ($client, $other) = (client, client);
same "suite", $client->client_getname;
my $big = join "", map { chr($_ % 256) } 1 .. 1 << 20;
$client->set("big", $big);
$client->get("big") eq $big or die "another value";
my @echoes;
$client->echo($_, sub { push @echoes, $_[0] }) for 0 .. 199;
$client->wait_all_responses;
same join(" ", 0 .. 199), @echoes;
my $script = "return {KEYS[1], ARGV[1]}";
same "{t}k x", $client->eval($script, 1, "{t}k", "x");
same "{t}k y", $client->evalsha($client->script_load($script), 1, "{t}k", "y");

$client->multi;
$client->set("{t}n", 1);
$client->incr("{t}n");
same "OK 2", $client->exec;
$client->watch("{t}n");
$other->set("{t}n", 9);
$client->multi;
$client->set("{t}n", 1);
same "nil", scalar $client->exec;

$client->del("{t}l");
my $child = fork;
if (!$child) {
    sleep 0.2;
    client->rpush("{t}l", "item");
    POSIX::_exit(0);
}
same "{t}l item", $client->blpop("{t}l", 300);
waitpid $child, 0;

$client->mset(map { ("scan:$_", 1) } 1 .. 300);
my ($cursor, %found) = (0);
do {
    ($cursor, my $keys) = $client->scan($cursor, "MATCH", "scan:*", "COUNT", 50);
    $found{$_} = 1 for @$keys;
} while $cursor ne "0";
same "300", scalar keys %found;
$client->del(keys %found);

$client->del("{t}s");
$client->xgroup("CREATE", "{t}s", "g", "0", "MKSTREAM");
$client->xadd("{t}s", "1-1", "a", 1);
same "[{t}s [[1-1 [a 1]]]]", $client->xreadgroup("GROUP", "g", "me", "STREAMS", "{t}s", ">");

my @got;
my $note = sub { push @got, "$_[1]:$_[0]" };
$client->subscribe("c", $note);
$client->psubscribe("p*", $note);
$other->publish("c", "hi");
$other->publish("px", "ho");
$client->wait_for_messages(1) while @got < 2;
same "c:hi px:ho", sort @got;
$client->unsubscribe("c", $note);
$client->punsubscribe("p*", $note);
same "9", $client->get("{t}n");

my @clients = map { client } 0 .. 49;
for my $turn (0 .. 19) {
    $clients[$_]->set("c$_", "$_:$turn." x ($_ + 1), sub { }) for 0 .. 49;
    for my $n (0 .. 49) {
        $clients[$n]->wait_all_responses;
        same "$n:$turn." x ($n + 1), $clients[$n]->get("c$n");
    }
}
