package cases

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/test/envoy/client"
)

// frames adds a case that sends frames after the client's preface, and compares the frames that
// arrive.
func (g *Group) frames(name string, send func(*client.FrameWriter), options ...option) {
	g.append(&Case{Label: name, Script: client.Script{Kind: client.Frames, Method: "GET", Frames: send}}, options)
}

// http2 adds the groups about HTTP/2 and gRPC.
func (s *set) http2() {
	s.frameSettings()
	s.frameStreams()
	s.frameHeaders()
	s.frameWindows()
	s.frameErrors()
	s.http2Options()
	s.http2Messages()
	s.http2Upstream()
	s.grpc()
}

// w is a shorthand for functions that send frames.
type w = client.FrameWriter

// pause is long enough for the proxy to process frames.
const pause = 100 * time.Millisecond

// closesSoon lets Envoy close a connection shortly after an error, instead of one second later.
const closesSoon = "delayed_close_timeout: 0.05s"

func (s *set) frameSettings() {
	g := s.add(Group{Feature: "h2.settings", HCM: closesSoon})
	for _, v := range []struct {
		name     string
		settings []http2.Setting
	}{
		{"none", nil},
		{"initial window 0", []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}},
		{"initial window 5", []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 5}}},
		{"initial window 2^31-1", []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}}},
		{"initial window 2^31", []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 31}}},
		{"frame size 16384", []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: 16384}}},
		{"frame size 16383", []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: 16383}}},
		{"frame size 2^24", []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: 1 << 24}}},
		{"push 2", []http2.Setting{{ID: http2.SettingEnablePush, Val: 2}}},
		{"push 1", []http2.Setting{{ID: http2.SettingEnablePush, Val: 1}}},
		{"table size 0", []http2.Setting{{ID: http2.SettingHeaderTableSize, Val: 0}}},
		{"header list size 10", []http2.Setting{{ID: http2.SettingMaxHeaderListSize, Val: 10}}},
		{"concurrent streams 0", []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 0}}},
		{"unknown", []http2.Setting{{ID: 0x99, Val: 1}}},
		{"the same twice", []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}, {ID: http2.SettingInitialWindowSize, Val: 65535}}},
		{"connect protocol 2", []http2.Setting{{ID: http2.SettingEnableConnectProtocol, Val: 2}}},
	} {
		g.frames(v.name, func(f *w) {
			f.Settings(v.settings...)
			f.Request(1, true)
		})
	}
	frame := func(name string, flags http2.Flags, stream uint32, payload string) {
		g.frames(name, func(f *w) {
			f.Settings()
			f.Frame(http2.FrameSettings, flags, stream, payload)
			f.Request(1, true)
		})
	}
	frame("SETTINGS on a stream", 0, 1, "")
	frame("SETTINGS with 5 bytes", 0, 0, "12345")
	frame("SETTINGS ACK with payload", http2.FlagSettingsAck, 0, "123456")
	frame("SETTINGS ACK that nobody expects", http2.FlagSettingsAck, 0, "")
	g.frames("no SETTINGS", func(f *w) { f.Request(1, true) })
	g.frames("PING before SETTINGS", func(f *w) { f.Frame(http2.FramePing, 0, 0, "12345678") })
}

func (s *set) frameStreams() {
	g := s.add(Group{Feature: "h2.streams", HCM: closesSoon})
	add := func(name string, send func(*w), options ...option) {
		g.frames(name, func(f *w) {
			f.Settings()
			send(f)
		}, options...)
	}
	add("one request", func(f *w) { f.Request(1, true) })
	add("three requests", func(f *w) { f.Request(1, true); f.Request(3, true); f.Request(5, true) }, sorted())
	add("an even stream", func(f *w) { f.Request(2, true) })
	add("stream 0", func(f *w) { f.Request(0, true) })
	add("a lower stream", func(f *w) { f.Request(5, true); f.Pause(pause); f.Request(3, true) })
	add("the same stream twice", func(f *w) { f.Request(1, true); f.Pause(pause); f.Request(1, true) })
	add("a skipped stream", func(f *w) { f.Request(101, true) })
	add("DATA on an idle stream", func(f *w) { f.Data(1, true, "x") })
	add("DATA after END_STREAM", func(f *w) { f.Request(1, true); f.Data(1, true, "x") })
	add("DATA on stream 0", func(f *w) { f.Data(0, true, "x") })
	add("RST_STREAM on an idle stream", func(f *w) { f.Reset(1, http2.ErrCodeCancel) })
	add("RST_STREAM on stream 0", func(f *w) { f.Frame(http2.FrameRSTStream, 0, 0, "\x00\x00\x00\x08") })
	add("RST_STREAM with 3 bytes", func(f *w) { f.Request(1, true); f.Frame(http2.FrameRSTStream, 0, 1, "\x00\x00\x00") })
	add("RST_STREAM after the response", func(f *w) { f.Request(1, true); f.Pause(pause); f.Reset(1, http2.ErrCodeCancel); f.Request(3, true) })
	add("RST_STREAM before the response", func(f *w) {
		f.Request(1, true, "x-o-delay", "400")
		f.Pause(pause)
		f.Reset(1, http2.ErrCodeCancel)
		f.Request(3, true)
	})
	add("a request after GOAWAY", func(f *w) { f.Frame(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"); f.Request(1, true) })
	add("GOAWAY on a stream", func(f *w) { f.Frame(http2.FrameGoAway, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00") })
	add("GOAWAY with 4 bytes", func(f *w) { f.Frame(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00") })
	add("PRIORITY", func(f *w) { f.Frame(http2.FramePriority, 0, 3, "\x00\x00\x00\x00\x10"); f.Request(1, true) })
	add("PRIORITY with 4 bytes", func(f *w) { f.Frame(http2.FramePriority, 0, 3, "\x00\x00\x00\x00"); f.Request(1, true) })
	add("PRIORITY that depends on itself", func(f *w) { f.Frame(http2.FramePriority, 0, 3, "\x00\x00\x00\x03\x10"); f.Request(1, true) })
	add("PRIORITY on stream 0", func(f *w) { f.Frame(http2.FramePriority, 0, 0, "\x00\x00\x00\x00\x10"); f.Request(1, true) })
	add("PUSH_PROMISE", func(f *w) { f.Frame(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, "\x00\x00\x00\x02") })
	add("PING", func(f *w) { f.Frame(http2.FramePing, 0, 0, "abcdefgh") })
	add("PING with ACK", func(f *w) { f.Frame(http2.FramePing, http2.FlagPingAck, 0, "abcdefgh"); f.Request(1, true) })
	add("PING with 6 bytes", func(f *w) { f.Frame(http2.FramePing, 0, 0, "abcdef") })
	add("PING on a stream", func(f *w) { f.Frame(http2.FramePing, 0, 1, "abcdefgh") })
	add("an unknown frame", func(f *w) { f.Frame(0x77, 0xff, 1, "abc"); f.Request(1, true) })
	add("an unknown frame on stream 0", func(f *w) { f.Frame(0x77, 0xff, 0, "abc"); f.Request(1, true) })
	add("a frame above the limit", func(f *w) { f.Request(1, false); f.Data(1, true, strings.Repeat("x", 16385)) })
	add("a body in pieces", func(f *w) {
		f.Request(1, false)
		f.Data(1, false, "abc")
		f.Pause(pause)
		f.Data(1, true, "def")
	})
	add("an empty DATA frame ends the body", func(f *w) { f.Request(1, false); f.Data(1, false, "abc"); f.Data(1, true, "") })
	add("padded DATA", func(f *w) {
		f.Request(1, false)
		f.Frame(http2.FrameData, http2.FlagDataPadded|http2.FlagDataEndStream, 1, "\x02ab\x00\x00")
	})
	add("too much padding", func(f *w) {
		f.Request(1, false)
		f.Frame(http2.FrameData, http2.FlagDataPadded|http2.FlagDataEndStream, 1, "\x09ab")
	})
	add("an incomplete request", func(f *w) { f.Request(1, false); f.Data(1, false, "abc") }, responseOnly(), timeout(time.Second))
}

// frameHeaders adds header blocks.
func (s *set) frameHeaders() {
	g := s.add(Group{Feature: "h2.headers", HCM: closesSoon})
	add := func(name string, send func(*w)) {
		g.frames(name, func(f *w) {
			f.Settings()
			send(f)
			f.Pause(pause)
			f.Request(101, true)
		})
	}
	change := func(name string, edit func(fields []string) []string) {
		add(name, func(f *w) { f.Headers(1, true, edit(client.RequestFields())...) })
	}
	replaced := func(name, value string) func([]string) []string {
		return func(fields []string) []string {
			for i := 0; i < len(fields); i += 2 {
				if fields[i] == name {
					fields[i+1] = value
				}
			}
			return fields
		}
	}
	without := func(name string) func([]string) []string {
		return func(fields []string) []string {
			i := slices.Index(fields, name)
			return slices.Delete(fields, i, i+2)
		}
	}
	with := func(namesAndValues ...string) func([]string) []string {
		return func(fields []string) []string { return append(fields, namesAndValues...) }
	}
	for _, name := range []string{":method", ":scheme", ":path", ":authority"} {
		change("without "+name, without(name))
		change("empty "+name, replaced(name, ""))
		change("twice "+name, func(fields []string) []string {
			return append([]string{name, fields[slices.Index(fields, name)+1]}, fields...)
		})
		change(name+" after a field", func(fields []string) []string {
			i := slices.Index(fields, name)
			return append(fields, name, fields[i+1])
		})
	}
	for _, v := range [][2]string{
		{":path", "abc"}, {":path", "*"}, {":path", "http://a.test/x"}, {":path", "/a b"}, {":path", "/a#f"}, {":path", "/\xff"}, {":path", "/a\x00"},
		{":method", "get"}, {":method", "FOO"}, {":method", "G T"}, {":method", "CONNECT"}, {":method", "OPTIONS"},
		{":scheme", "https"}, {":scheme", "ftp"}, {":scheme", "HTTP"}, {":scheme", "h t"},
		{":authority", "a.test:80"}, {":authority", "u@a.test"}, {":authority", "a b"}, {":authority", "A.TEST"},
	} {
		change(v[0]+" "+v[1], replaced(v[0], v[1]))
	}
	for _, v := range [][2]string{
		{"X-Upper", "1"}, {"connection", "close"}, {"connection", "x-a"}, {"keep-alive", "5"}, {"proxy-connection", "x"}, {"transfer-encoding", "chunked"},
		{"upgrade", "h2c"}, {"te", "trailers"}, {"te", "gzip"}, {"host", "a.test"}, {"host", "b.test"}, {":unknown", "1"}, {":status", "200"}, {"x y", "1"},
		{"", "1"}, {"x-a", "a\x00b"}, {"x-a", "a\nb"}, {"x-a", "a\rb"}, {"x-a", " a "}, {"x-a", "\xff"}, {"x-a", ""}, {"x_a", "1"}, {"x-\xff", "1"},
		{"content-length", "5"}, {"content-length", "0"}, {"content-length", "x"}, {"content-length", "-1"}, {"cookie", "a=b"}, {"expect", "100-continue"},
	} {
		change(v[0]+": "+v[1], with(v[0], v[1]))
	}
	change("two host fields", with("host", "a.test", "host", "b.test"))
	change("two content-length fields", with("content-length", "0", "content-length", "0"))
	change("a host instead of :authority", func(fields []string) []string { return append(without(":authority")(fields), "host", "a.test") })
	change("several cookies", with("cookie", "a=1", "cookie", "b=2"))
	change("many fields", func(fields []string) []string {
		for range 120 {
			fields = append(fields, "x-n", "1")
		}
		return fields
	})
	s.frameContinuations(add)
	s.frameBlocks(add)
	s.frameTrailers(add)
}

// frameContinuations adds header blocks that need several frames.
func (*set) frameContinuations(add func(name string, send func(*w))) {
	for _, size := range []int{8 << 10, 40 << 10, 70 << 10} {
		add("a block of many bytes in CONTINUATION", func(f *w) {
			block := f.Block(append(client.RequestFields(), "x-big", strings.Repeat("\x7f", size))...)
			f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, block[:100])
			for rest := block[100:]; rest != ""; {
				n := min(len(rest), 16384)
				var flags http2.Flags
				if n == len(rest) {
					flags = http2.FlagContinuationEndHeaders
				}
				f.Frame(http2.FrameContinuation, flags, 1, rest[:n])
				rest = rest[n:]
			}
		})
	}
}

// frameBlocks adds malformed header blocks.
func (*set) frameBlocks(add func(name string, send func(*w))) {
	add("a block in two frames", func(f *w) {
		block := f.Block(client.RequestFields()...)
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, block[:10])
		f.Frame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, block[10:])
	})
	add("a frame between HEADERS and CONTINUATION", func(f *w) {
		block := f.Block(client.RequestFields()...)
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, block[:10])
		f.Frame(http2.FramePing, 0, 0, "12345678")
		f.Frame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, block[10:])
	})
	add("CONTINUATION of another stream", func(f *w) {
		block := f.Block(client.RequestFields()...)
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, block[:10])
		f.Frame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 3, block[10:])
	})
	add("CONTINUATION without HEADERS", func(f *w) { f.Frame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "") })
	add("empty CONTINUATION frames", func(f *w) {
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, f.Block(client.RequestFields()...))
		for range 10 {
			f.Frame(http2.FrameContinuation, 0, 1, "")
		}
		f.Frame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "")
	})
	add("an invalid index", func(f *w) {
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders, 1, "\xff\xff\xff\x0f")
	})
	add("an incomplete block", func(f *w) {
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders, 1, "\x40\x05abc")
	})
	add("a large table size", func(f *w) {
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders, 1, "\x3f\xff\xff\xff\x07"+f.Block(client.RequestFields()...))
	})
	add("padded HEADERS", func(f *w) {
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders|http2.FlagHeadersPadded, 1, "\x03"+f.Block(client.RequestFields()...)+"\x00\x00\x00")
	})
	add("too much padding of HEADERS", func(f *w) {
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders|http2.FlagHeadersPadded, 1, "\xff"+f.Block(":method", "GET"))
	})
	add("HEADERS with a priority", func(f *w) {
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders|http2.FlagHeadersPriority, 1, "\x00\x00\x00\x00\x10"+f.Block(client.RequestFields()...))
	})
	add("HEADERS that depend on themselves", func(f *w) {
		f.Frame(http2.FrameHeaders, http2.FlagHeadersEndStream|http2.FlagHeadersEndHeaders|http2.FlagHeadersPriority, 1, "\x00\x00\x00\x01\x10"+f.Block(client.RequestFields()...))
	})
}

// frameTrailers adds trailers, and lengths that differ from the body.
func (*set) frameTrailers(add func(name string, send func(*w))) {
	post := append([]string{":method", "POST"}, client.RequestFields()[2:]...)
	trailers := func(name string, end bool, fields ...string) {
		add("trailers: "+name, func(f *w) {
			f.Headers(1, false, post...)
			f.Data(1, false, "abc")
			f.Headers(1, end, fields...)
		})
	}
	trailers("one", true, "x-t", "1")
	trailers("without END_STREAM", false, "x-t", "1")
	trailers("pseudo-field", true, ":path", "/")
	trailers("upper case", true, "X-T", "1")
	trailers("connection", true, "connection", "close")
	trailers("content-length", true, "content-length", "3")
	trailers("none", true)
	for _, length := range []string{"5", "2", "3", "0"} {
		add("content-length "+length+" of a body of 3 bytes", func(f *w) {
			f.Headers(1, false, append(slices.Clone(post), "content-length", length)...)
			f.Data(1, true, "abc")
		})
	}
}

func (s *set) frameWindows() {
	g := s.add(Group{Feature: "h2.flow_control", HCM: closesSoon})
	add := func(name string, settings []http2.Setting, send func(*w), options ...option) {
		g.frames(name, func(f *w) {
			f.Settings(settings...)
			send(f)
		}, options...)
	}
	window := func(n uint32) []http2.Setting { return []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: n}} }
	add("a response above the window", nil, func(f *w) { f.Request(1, true, "x-o-len", "100000") })
	add("a response above the window of a stream", window(1000), func(f *w) { f.Request(1, true, "x-o-len", "5000") })
	add("more credit for a stream", window(1000), func(f *w) {
		f.Request(1, true, "x-o-len", "5000")
		f.Pause(pause)
		f.WindowUpdate(1, 10000)
	})
	add("more credit for the connection only", window(1000), func(f *w) {
		f.WindowUpdate(0, 100000)
		f.Request(1, true, "x-o-len", "5000")
	})
	add("SETTINGS add credit", window(0), func(f *w) {
		f.Request(1, true, "x-o-len", "5000")
		f.Pause(pause)
		f.Settings(window(65535)...)
	})
	add("SETTINGS remove credit", window(3000), func(f *w) {
		f.Request(1, true, "x-o-len", "5000")
		f.Pause(pause)
		f.Settings(window(0)...)
		f.WindowUpdate(1, 100)
	})
	add("another stream continues", window(0), func(f *w) {
		f.Request(1, true, "x-o-len", "5000")
		f.Request(3, true)
		f.Pause(pause)
		f.WindowUpdate(3, 100)
	}, sorted())
	add("WINDOW_UPDATE of 0", nil, func(f *w) { f.Request(1, true, "x-o-delay", "200"); f.WindowUpdate(1, 0) })
	add("WINDOW_UPDATE of 0 for the connection", nil, func(f *w) { f.WindowUpdate(0, 0) })
	add("WINDOW_UPDATE on an idle stream", nil, func(f *w) { f.WindowUpdate(1, 10) })
	add("WINDOW_UPDATE with 3 bytes", nil, func(f *w) { f.Frame(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x01") })
	add("WINDOW_UPDATE after the end", nil, func(f *w) { f.Request(1, true); f.Pause(pause); f.WindowUpdate(1, 10); f.Request(3, true) })
	add("overflow of the connection", nil, func(f *w) { f.WindowUpdate(0, 1<<31-1) })
	add("overflow of a stream", nil, func(f *w) { f.Request(1, true, "x-o-delay", "200"); f.WindowUpdate(1, 1<<31-1) })
	add("overflow by SETTINGS", nil, func(f *w) {
		f.Request(1, true, "x-o-delay", "200")
		f.WindowUpdate(1, 1<<30)
		f.Settings(window(1<<31 - 1)...)
	})
	add("a body above the proxy's default window", nil, func(f *w) {
		f.Request(1, false)
		for range 3 {
			f.Data(1, false, strings.Repeat("x", 16000))
		}
		f.Data(1, true, "")
	})
}

// frameErrors adds what is no HTTP/2, and floods below the limits of both proxies.
func (s *set) frameErrors() {
	g := s.add(Group{Feature: "h2.connection", HCM: closesSoon})
	g.frames("bytes that are no frame", func(f *w) { f.Settings(); f.Bytes(strings.Repeat("z", 100)) })
	g.frames("HTTP/1.1 after the preface", func(f *w) { f.Bytes("GET / HTTP/1.1\r\nHost: a\r\n\r\n") })
	g.frames("many PING frames", func(f *w) {
		f.Settings()
		for range 20 {
			f.Frame(http2.FramePing, 0, 0, "12345678")
		}
		f.Request(1, true)
	})
	g.frames("many empty DATA frames", func(f *w) {
		f.Settings()
		f.Request(1, false)
		for range 20 {
			f.Data(1, false, "")
		}
		f.Data(1, true, "x")
	})
	g.frames("many resets", func(f *w) {
		f.Settings()
		for i := range uint32(20) {
			f.Request(2*i+1, true, "x-o-delay", "200")
			f.Reset(2*i+1, http2.ErrCodeCancel)
		}
		f.Request(101, true)
	}, responseOnly())
	g.raw("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", label("a malformed preface"), timeout(time.Second))
	g.raw("PRI * HTTP/2.0\r\n\r\n", label("half of a preface"), timeout(time.Second))
}

func (s *set) http2Options() {
	const feature = "h2.options"
	for _, v := range []variant{
		{"max_concurrent_streams", "max_concurrent_streams: 2"},
		{"allow_connect", "allow_connect: true"},
		{"error", "override_stream_error_on_invalid_http_message: true"},
		{"windows", "{initial_stream_window_size: 65535, initial_connection_window_size: 65535}"},
		{"table", "hpack_table_size: 0"},
		{"keepalive", "connection_keepalive: {interval: 0.3s, timeout: 0.2s}"},
		{"metadata", "allow_metadata: true"},
		{"flood", "max_inbound_priority_frames_per_stream: 1"},
	} {
		yaml := v.yaml
		if !strings.HasPrefix(yaml, "{") {
			yaml = "{" + yaml + "}"
		}
		g := s.add(Group{Feature: feature, HCM: "http2_protocol_options: " + yaml + "\n" + closesSoon})
		g.h2(label(v.name))
		g.frames(v.name+" four requests", func(f *w) {
			f.Settings()
			for i := range uint32(4) {
				f.Request(2*i+1, true, "x-o-delay", "150")
			}
		}, sorted(), timeout(3*time.Second))
		g.frames(v.name+" malformed", func(f *w) {
			f.Settings()
			f.Request(1, true, "x-a", "a\nb")
			f.Pause(pause)
			f.Request(3, true)
		})
		g.frames(v.name+" extended CONNECT", func(f *w) {
			f.Settings()
			f.Headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "a.test", "x-case", "{case}")
		})
		g.frames(v.name+" idle", func(f *w) { f.Settings(); f.Request(1, true); f.Pause(700 * time.Millisecond) })
	}
}

// http2Messages adds messages between HTTP/1.1 and HTTP/2 in both directions.
func (s *set) http2Messages() {
	to := func(name string) *Group {
		return s.add(Group{Feature: "h2.translation", Routes: "- {match: {prefix: /}, route: {cluster: " + name + "}}"})
	}
	type send struct {
		name string
		add  func(g *Group, options ...option)
	}
	for _, v := range []send{
		{"h1 to h2", func(g *Group, options ...option) { g.get("/", options...) }},
		{"h2 to h2", func(g *Group, options ...option) { g.h2(options...) }},
		{"h2 to h1", func(g *Group, options ...option) { g.h2(options...) }},
	} {
		name := "h1"
		if v.name == "h2 to h1" {
			name = "o1"
		}
		g := to(name)
		add := func(text string, options ...option) { v.add(g, append(options, label(v.name+" "+text))...) }
		add("GET")
		add("HEAD", method("HEAD"))
		add("POST", method("POST"), body("abc"))
		add("an empty POST", method("POST"), body(""))
		add("a large POST", method("POST"), body(strings.Repeat("x", 100_000)))
		add("a large response", field("x-o-len", "200000"), bodyLength())
		add("chunked", field("x-o-chunked", "1"))
		add("trailers", field("x-o-trailers", "x-t=1,x-u=2"))
		add("early hints", field("x-o-early", "1"))
		add("cut", field("x-o-len", "100"), field("x-o-cut", "10"))
		add("reset", field("x-o-seq", "reset"))
		add("refused", field("x-o-seq", "reset"), field("x-o-refused", "1"))
		add("reset, then 200", field("x-o-seq", "reset,200"), field("x-o-refused", "1"))
		add("close", field("x-o-seq", "close"))
		add("until close", field("x-o-untilclose", "1"))
		add("cookies", field("cookie", "a=1; b=2"))
		add("several cookies", field("cookie", "a=1"), field("cookie", "b=2"))
		add("set-cookie", field("x-o-h", "Set-Cookie: a=1|Set-Cookie: b=2"))
		add("te", field("te", "trailers"))
		add("expect", field("expect", "100-continue"), method("POST"), body("abc"))
		add("several fields of one name", field("x-a", "1"), field("x-a", "2"))
		add("OPTIONS", method("OPTIONS"))
		add("DELETE", method("DELETE"))
		add("PUT", method("PUT"), body("abc"))
		for _, status := range []string{"204", "304", "205", "404", "500", "599"} {
			add("status "+status, field("x-o-status", status))
		}
	}
}

// http2Upstream adds malformed responses of HTTP/2 hosts.
func (s *set) http2Upstream() {
	g := s.add(Group{Feature: "h2.upstream", Routes: "- {match: {prefix: /}, route: {cluster: h2}}"})
	for _, kind := range []string{
		"no-status", "status-x", "upper-case", "connection", "status-twice", "content-length", "pseudo-trailers", "newline", "many-fields", "data-first", "head-twice",
	} {
		g.get("/", field("x-o-malformed", kind), label("h1 "+kind))
		g.h2(field("x-o-malformed", kind), label("h2 "+kind))
	}
}
