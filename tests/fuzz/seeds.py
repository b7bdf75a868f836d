#!/usr/bin/python3
"""Write tests/fuzz/corpus: for each fuzzer a few inputs that reach far, from which it finds the others.

Inputs in which something was found stand beside them, as found-WHAT; those are kept by hand. The numbers of the deeds are
those of the switch in fuzz_server.c and fuzz_client.c.
"""
import json
import os

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'corpus')


def sized(data):
    """As fuzz_bytes() reads it."""
    return (bytes([len(data)]) if len(data) < 0x80 else bytes([0x80 | len(data) >> 8, len(data) & 0xff])) + data


# --- protobuf ---

def varint(number):
    out = b''
    while number > 0x7f:
        out += bytes([0x80 | number & 0x7f])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


KEY = '0f8fad5b-d9cb-469f-a165-708677289500'
SCOPE = field(1, 'payments') + field(1, 'invoices') + field(2, 'k1')
REF = field(1, SCOPE) + field(2, KEY)
SECONDS = field(1, 5) + field(2, 500000000)
LEASE = field(1, SCOPE) + field(2, KEY) + field(3, 7) + field(4, 'somebody') + field(6, SECONDS)
ACQUIRE = (field(1, SCOPE) + field(2, SECONDS) + field(3, SECONDS) + field(5, 'somebody') + field(6, KEY) +
           field(7, field(1, 'pid') + field(2, '17')))
POLICY = field(1, field(1, 'payments')) + field(2, SECONDS) + field(3, SECONDS)

# --- deeds of both ---

RAW, FRAME = 0, 1


def frame(kind, flags, stream, payload=b''):
    return bytes([FRAME, kind, flags, stream]) + sized(payload)


# --- deeds of a client of the server ---

ACQUIRING, STREAMING, HOLDING, BEATING, KEEPING, RELEASING, GETTING, LISTING, WATCHING, REAPING, FORCING, HEALTH, REFLECTING, \
    STATUS, POLICIES, POLICY_OF, ACQUIRING_ALL, DOWNGRADING = range(18)
TURN = b'\x06'


def request(which, scope=1, rest=b'', more_of=None, is_last=True):
    how = int(is_last) | (0 if more_of is None else 2)
    return bytes([4, how]) + (b'' if more_of is None else bytes([more_of // 2])) + bytes([which, scope]) + rest


def message(stream, data, is_last=True):
    return bytes([3, stream // 2, int(is_last)]) + sized(data)


def later(power):
    return bytes([7, power])


def client(which):
    return bytes([11, which])


def settings(number, value):
    return bytes([14, number]) + value.to_bytes(4, 'big')


SERVER = {
    'pair': b'\0' + request(ACQUIRING, rest=b'\x05') + TURN + request(BEATING) + TURN + request(RELEASING) + TURN,
    'waiters': b'\0' + request(ACQUIRING, rest=b'\x05') + TURN + client(1) + request(ACQUIRING, 5, b'\xf5') + TURN + client(2) +
               request(STREAMING, 9, b'\x55') + TURN + client(0) + request(RELEASING) + TURN + later(23) + later(24) + TURN,
    'gone': b'\0' + request(ACQUIRING, rest=b'\x05') + client(1) + request(ACQUIRING, 5, b'\xf5') + TURN + bytes([12, 0]) + client(0) +
            bytes([12, 1]) + TURN,
    'hold': b'\0' + request(HOLDING, 1, b'\x00\x05', is_last=False) + TURN + later(21) +
            request(HOLDING, 1, b'\x02\x05', more_of=1, is_last=False) + TURN + request(HOLDING, 1, b'\x01', more_of=1) + TURN,
    'keep': b'\0' + request(ACQUIRING, rest=b'\x05') + TURN + request(KEEPING, is_last=False) + TURN +
            request(KEEPING, more_of=3, is_last=False) + TURN + request(KEEPING, more_of=3) + TURN,
    'watch': b'\0' + request(WATCHING) + TURN + request(ACQUIRING, rest=b'\x05') + TURN + b'\x0f' + TURN + b'\x0f' + TURN + later(20),
    'lists': b'\1' + bytes([8, 1]) + request(LISTING) + request(REFLECTING, is_last=False) + request(REFLECTING, more_of=3) +
             request(HEALTH) + request(GETTING) + request(REAPING) + request(FORCING) + TURN + later(24) + bytes([8, 0]) + TURN,
    'hooks': b'\2' + request(ACQUIRING, rest=b'\x05') + TURN + request(BEATING) + later(20) + request(RELEASING) + later(20),
    'windows': b'\0' + settings(4, 0) + request(REFLECTING, is_last=False) + TURN + settings(4, 65535) + bytes([10, 0, 1, 0, 0]) + TURN,
    'resets': b'\1' + b''.join(request(ACQUIRING, 5, b'\x55') + bytes([9, i, 0, 0, 8]) for i in range(6)) + TURN,
    'shared': b'\0' + request(ACQUIRING, 0x21, b'\x05') + TURN + client(1) + request(ACQUIRING, 0x45, b'\x55') + TURN + client(2) +
              request(ACQUIRING, 9, b'\x55') + TURN + client(1) + request(DOWNGRADING, 5, b'\1') + TURN + client(0) + request(RELEASING, 0x21) + TURN,
    'downgrade': b'\0' + request(ACQUIRING, rest=b'\x05') + TURN + client(1) + request(ACQUIRING, 0x25, b'\x55') + TURN + client(0) +
                 request(DOWNGRADING, rest=b'\1') + TURN + later(20),
    'together': b'\0' + request(ACQUIRING, rest=b'\x05') + TURN + client(1) + request(ACQUIRING_ALL, 5, b'\7\x55\0\1\0') + TURN + client(2) +
                request(ACQUIRING_ALL, 9, b'\6\x55\0\0') + TURN + client(0) + request(RELEASING) + TURN + later(20) + TURN,
    'together-gone': b'\0' + request(ACQUIRING, rest=b'\x05') + client(1) + request(ACQUIRING_ALL, 5, b'\3\xf5\0\0') + TURN + bytes([12, 1]) +
                     client(0) + request(RELEASING) + TURN,
    'early-reset': b'\0' + bytes([9, 0, 0, 0, 8]) + request(ACQUIRING, rest=b'\x05') + TURN,
    'continued': b'\0' + frame(1, 1, 1, b'\x83\x86') + frame(9, 0, 1, b'\x04\x05/t') + frame(9, 4, 1, b'.T/') + TURN,
    'unfinished': b'\0' + bytes([4, 0, ACQUIRING, 1, 5]) + frame(0, 0, 3, b'\0\0\0\1\0half') + later(24) + TURN,
    'outage': b'\0' + request(ACQUIRING, rest=b'\x05') + client(1) + request(ACQUIRING, 5, b'\xf5') + TURN + bytes([13, 1]) + later(22) +
              bytes([13, 0]) + later(24) + TURN,
    'drain': b'\0' + request(ACQUIRING, rest=b'\xf5') + client(1) + request(ACQUIRING, 5, b'\xf5') + TURN + bytes([16, 0xdd]) +
             request(BEATING) + later(20) + later(24) + TURN,
    'any': b'\0' + bytes([2, 0, 0xe0]) + sized(b'5S') + sized(b'AAAA') + bytes([2, 5, 0x40]) + sized(b'1m') + message(3, ACQUIRE) + TURN,
    'preface': b'\4' + bytes([RAW]) + sized(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n') + TURN + frame(4, 0, 0) + request(GETTING) + TURN,
    'http1': b'\4' + bytes([RAW]) + sized(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n') + TURN,
    'bits': b'\0' + frame(6, 0, 0, b'12345678') + frame(2, 0, 1, b'\0\0\0\0\1') + frame(8, 0, 0, b'\0\0\0\1') + frame(7, 0, 0, bytes(8)) + TURN,
}

# --- deeds of a server of the client ---

CALL_TURN = b'\x07'


def answer(stream, kind, of=30, outcome=1):
    return bytes([4, stream // 2, kind, of, outcome])


def failure(stream, code, kind, value=b''):
    return bytes([6, stream // 2, code, kind]) + sized(value)


CLIENT = {
    'granted': b'\0' + answer(1, 0) + CALL_TURN + bytes([14, 0x40]) + CALL_TURN + answer(3, 2) + CALL_TURN + bytes([14, 0x20]) + CALL_TURN +
               answer(5, 3) + CALL_TURN,
    'renewed': b'\0' + answer(1, 0) + CALL_TURN + bytes([8, 21]) + CALL_TURN + answer(3, 0x22) + CALL_TURN + bytes([8, 21]) + bytes([8, 24]),
    'queued': b'\x60' + answer(1, 0x21) + CALL_TURN + bytes([5, 0, 0x11, 9, 0]) + CALL_TURN,
    'refused': b'\0' + failure(1, 10, 0x84, b'') + CALL_TURN + bytes([8, 20]) + failure(3, 14, 1, field(1, SECONDS)) + bytes([8, 22]),
    'delayed': b'\0' + failure(1, 8, 0x41, field(1, field(1, 1))) + CALL_TURN + bytes([8, 21]),
    'broken': b'\4' + bytes([11, 0]) + CALL_TURN + bytes([12, 1]) + bytes([8, 24]) + bytes([12, 0]) + bytes([8, 24]) + CALL_TURN,
    'away': b'\0' + bytes([9, 0, 0]) + CALL_TURN + bytes([8, 22]) + answer(1, 0) + CALL_TURN,
    'reset': b'\0' + bytes([10, 0, 7]) + CALL_TURN + bytes([8, 20]) + CALL_TURN + answer(3, 0) + CALL_TURN,
    'cancelled': b'\0' + bytes([15, 0]) + CALL_TURN + answer(1, 0) + CALL_TURN,
    'released': b'\0' + answer(1, 0) + CALL_TURN + bytes([14, 0x10]) + CALL_TURN + answer(3, 3) + CALL_TURN + bytes([14, 0]) + CALL_TURN,
    'any': b'\0' + bytes([2, 0, 3]) + sized(b'200') + sized(b'application/grpc') + bytes([3, 0, 2]) + sized(field(1, LEASE)) + CALL_TURN,
    'http1': b'\0' + bytes([RAW]) + sized(b'HTTP/1.1 400 Bad Request\r\n\r\n') + CALL_TURN,
    'pushed': b'\0' + frame(5, 4, 1, b'\0\0\0\2\x88') + CALL_TURN,
}

MESSAGE = {
    'acquire': b'\0' + ACQUIRE,
    'heartbeat': b'\1' + field(1, REF) + field(1, REF),
    'together': b'\x0c' + field(1, field(1, SCOPE)) + field(1, field(1, field(1, 'payments') + field(2, 'k2')) + field(2, 2) + field(3, 4)) +
                field(2, SECONDS) + field(3, SECONDS) + field(5, 'somebody') + field(6, KEY),
    'release': b'\2' + field(1, field(1, REF) + field(2, '{"rows": 3}')),
    'list': b'\4' + field(1, 'payments') + field(2, 1) + field(3, 10),
    'reap': b'\5' + field(1, field(1, 'payments')),
    'force': b'\6' + field(1, SCOPE) + field(2, 'it hangs'),
    'hold': b'\7' + field(1, ACQUIRE),
    'acquired': bytes([0x80 + 2]) + field(1, LEASE) + field(2, SECONDS),
    'beaten': bytes([0x80 + 5]) + field(1, field(1, KEY) + field(2, 1) + field(3, SECONDS)),
    'got': bytes([0x80 + 7]) + field(1, LEASE + b''.join(field(i, SECONDS) for i in (5, 7, 8, 10))) + field(2, field(1, LEASE) + field(3, 4)),
    'far': b'\xf0' + field(1, 10) + field(3, field(1, 'type.googleapis.com/google.rpc.RetryInfo') + field(2, field(1, field(1, 2 ** 64 - 2 ** 62)))),
    'failure': b'\xf0' + field(1, 10) + field(3, field(1, 'type.googleapis.com/google.rpc.RetryInfo') + field(2, field(1, SECONDS))),
}

def mcp(method, **params):
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode() + b'\n'


MODERN = {'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {}}

CORPORA = {
    'server': SERVER,
    'client': CLIENT,
    'message': MESSAGE,
    'policy': {
        'request': b'\0' + field(1, POLICY) + field(2, field(1, 'min_duration')),
        'everything': b'\0' + field(1, POLICY) + field(2, field(1, '*')),
        **{'words%d' % i: bytes([1, i]) + text for i, text in enumerate([b'5s', b'1h30m', b'250ms', b'2d', b'1m', b'takeover', b'auto', b'yes',
                                                                        b'1000', b'0', b'no', b'5', b'2s', b'1d', b'90d'])},
    },
    'config': {
        'small': b'[leasehold]\nlisten = 127.0.0.1:7420, unix:/run/x\nmemory = 64 MiB\nmax_block = 20s\n',
        'lists': b'[leasehold]\nlisten = 127.0.0.1:1\n  [::1]:2\ndatabase = host=a\n  password=b\n# no\nmigrate = no\n',
        'wrong': b'[other]\nx = 1\nlisten\n[leasehold]\nlog_level = loud\nlisten = 1\nlisten = 2\n',
        'arguments': b'\0--listen=[::]:1\0--insecure\0--socket-mode=0770\0--log-level\0debug\0--lanes\x004\0',
        'check': b'[leasehold]\nembedded = /tmp/x\nadmin = none\nidle_timeout = 0\n\0--check-config\0',
    },
    'json': {
        'labels': b'{"a":"b","c":"\\u00e9\\n","\\u0001":""}',
        'result': b'{"rows": [1, 2.5e3, null, true], "text": "x"}',
        'large': b'1e400',
        'nested': b'[' * 60 + b']' * 60,
    },
    'mcp': {
        'initialize': b'\0\x08' + mcp('initialize', protocolVersion='2025-11-25') + mcp('tools/list') + mcp('ping') + mcp('logging/setLevel', level='info'),
        'modern': b'\2\x40' + mcp('server/discover', _meta=MODERN) + mcp('tools/list', _meta=MODERN) + mcp('tools/call', name='list', _meta=MODERN),
        'calls': b'\6\x20' + b''.join(mcp('tools/call', name=name, arguments={'namespace': 'a.b', 'key': 'k'}, _meta={'progressToken': 1})
                                     for name in ('acquire', 'renew', 'release', 'explain', 'run')),
        'cancelled': b'\4\x10' + mcp('tools/call', name='acquire', arguments={'namespace': 'a', 'key': 'k', 'wait': 'forever', 'shared': 2}) +
                     b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n' + mcp('ping'),
        'wrong': b'\5\1{\n[]\n7\n\n\r\n{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n{"jsonrpc":"2.0","id":1,"id":2}\n' + mcp('x' * 300),
        'long': b'\4\x7f\xff\xff\n' + mcp('ping') + b'\xff\n{"\xff',
    },
    'page_token': {
        'text': b'\0\0\0AQEAAAAAAAAAAAhwYXltZW50c2sx',
        'made': b'\1\0\0paymentsk1',
        'changed': b'\1\5\1paymentsk1',
    },
    'metadata': {
        'base64': b'aGVsbG8=', 'base64-bare': b'aGVsbG8', 'timeout': b'99999999H', 'message': b'%E2%82%ac%zz%', 'address': b'[::1]:7420',
        'unix': b'unix:/run/leasehold', 'duration': b'1h30m', 'fraction': b'1.5s', 'uuid': KEY.encode(), 'characters': 'é€𝄞\u202e'.encode(),
    },
    'headers': {
        'request': b'\3\x83\x86\x04\x05/t.TX\x40\x0ccontent-type\x10application/grpc\x40\x02te\x08trailers',
        'indexed': b'\0\x82\x84\x87\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff',
        'resized': b'\1\x20\x3f\xe1\x1f\x83\x86',
        'long': b'\x10\x00\x01x\x7f\x81\x80\x02' + b'y' * 64,
        'never': b'\1\x10\x08password\x06secret\x0f\x0d\x03abc',
    },
}


def main():
    for name, seeds in CORPORA.items():
        os.makedirs(os.path.join(CORPUS, name), exist_ok=True)
        for seed, data in seeds.items():
            with open(os.path.join(CORPUS, name, seed), 'wb') as file:
                file.write(data)


main()
