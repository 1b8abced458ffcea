-- lua-redis. Usage: client.lua SOCKET
local redis = require "redis"
for _, name in ipairs { "xgroup", "xadd", "xreadgroup", "client" } do
    redis.commands[name] = redis.command(name:upper())
end

local function connect()
    return redis.connect("unix://" .. arg[1])
end

-- A reply as text, with its arrays in brackets.
local function flat(value)
    if type(value) ~= "table" then
        return tostring(value)
    end
    local parts = {}
    for _, member in ipairs(value) do
        parts[#parts + 1] = flat(member)
    end
    return "[" .. table.concat(parts, " ") .. "]"
end

local function same(got, wanted)
    if flat(got) ~= wanted then
        error(flat(got):sub(1, 200) .. " instead of " .. wanted:sub(1, 200), 2)
    end
end

local client, other = connect(), connect()
client:client("SETNAME", "suite")
same(client:client("GETNAME"), "suite")
local bytes = {}
for byte = 0, 255 do
    bytes[#bytes + 1] = string.char(byte)
end
local big = table.concat(bytes):rep(4096)
client:set("big", big)
assert(client:get("big") == big)
local echoes = client:pipeline(function(pipe)
    for n = 1, 200 do
        pipe:echo(tostring(n))
    end
end)
for n = 1, 200 do
    same(echoes[n], tostring(n))
end
same(client:eval("return {KEYS[1], ARGV[1]}", 1, "{t}k", "x"), "[{t}k x]")

same(client:transaction(function(tx) tx:set("{t}n", "1") tx:incr("{t}n") end), "[true 2]")
local tries = 0
client:transaction({ watch = { "{t}n" }, cas = true, retry = 2 }, function(tx)
    tries = tries + 1
    if tries == 1 then
        other:set("{t}n", "9")
    end
    tx:multi()
    tx:set("{t}n", "5")
end)
same(tries, "2")

client:del("{t}l")
client:rpush("{t}l", "item")
same(client:blpop("{t}l", 300), "[{t}l item]")
same(client:blpop("{t}l", 1), "nil")

local values, found, count, cursor = {}, {}, 0, 0
for n = 1, 300 do
    values["scan:" .. n] = "1"
end
client:mset(values)
repeat
    local batch = client:scan(cursor, { match = "scan:*", count = 50 })
    cursor = batch[1]
    for _, key in ipairs(batch[2]) do
        if not found[key] then
            found[key], count = true, count + 1
        end
    end
until tostring(cursor) == "0"
same(count, "300")
for key in pairs(found) do
    client:del(key)
end

client:del("{t}s")
client:xgroup("CREATE", "{t}s", "g", "0", "MKSTREAM")
client:xadd("{t}s", "1-1", "a", "1")
same(client:xreadgroup("GROUP", "g", "me", "STREAMS", "{t}s", ">"), "[[{t}s [[1-1 [a 1]]]]]")

local got = {}
for message, stop in client:pubsub { subscribe = { "c" }, psubscribe = { "p*" } } do
    if message.kind == "psubscribe" then
        other:publish("c", "hi")
        other:publish("px", "ho")
    elseif message.kind:match "message$" then
        got[#got + 1] = message.payload
        if #got == 2 then
            stop()
        end
    end
end
table.sort(got)
same(got, "[hi ho]")
same(client:get("{t}n"), "5")

local clients = {}
for n = 1, 50 do
    clients[n] = connect()
end
for turn = 1, 20 do
    for n = 1, 50 do
        local value = (n .. ":" .. turn .. "."):rep(n)
        clients[n]:set("c" .. n, value)
        same(clients[n]:get("c" .. n), value)
    end
end
