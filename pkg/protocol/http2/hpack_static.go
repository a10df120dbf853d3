package http2

// staticTableLen is the number of entries of the static table (RFC 7541 appendix A). Higher indexes
// refer to the dynamic table.
const staticTableLen = 61

//nolint:gochecknoglobals // a constant table
var staticTable = makeStaticTable()

// makeStaticTable returns the static table; its index 0 is unused, as in the RFC.
func makeStaticTable() (t [staticTableLen + 1]field) {
	for i, f := range [...][2]string{
		{":authority", ""}, {":method", "GET"}, {":method", "POST"}, {":path", "/"},
		{":path", "/index.html"}, {":scheme", "http"}, {":scheme", "https"}, {":status", "200"},
		{":status", "204"}, {":status", "206"}, {":status", "304"}, {":status", "400"},
		{":status", "404"}, {":status", "500"}, {"accept-charset", ""}, {"accept-encoding", "gzip, deflate"},
		{"accept-language", ""}, {"accept-ranges", ""}, {"accept", ""}, {"access-control-allow-origin", ""},
		{"age", ""}, {"allow", ""}, {"authorization", ""}, {"cache-control", ""},
		{"content-disposition", ""}, {"content-encoding", ""}, {"content-language", ""}, {"content-length", ""},
		{"content-location", ""}, {"content-range", ""}, {"content-type", ""}, {"cookie", ""},
		{"date", ""}, {"etag", ""}, {"expect", ""}, {"expires", ""},
		{"from", ""}, {"host", ""}, {"if-match", ""}, {"if-modified-since", ""},
		{"if-none-match", ""}, {"if-range", ""}, {"if-unmodified-since", ""}, {"last-modified", ""},
		{"link", ""}, {"location", ""}, {"max-forwards", ""}, {"proxy-authenticate", ""},
		{"proxy-authorization", ""}, {"range", ""}, {"referer", ""}, {"refresh", ""},
		{"retry-after", ""}, {"server", ""}, {"set-cookie", ""}, {"strict-transport-security", ""},
		{"transfer-encoding", ""}, {"user-agent", ""}, {"vary", ""}, {"via", ""},
		{"www-authenticate", ""},
	} {
		t[i+1] = newField(f[0], f[1], nameOwned|valueOwned)
	}
	return t
}

// The indexes in the static table that the encoder uses directly.
const (
	staticAuthority     = 1
	staticGet           = 2
	staticPost          = 3
	staticPath          = 4
	staticHTTP          = 6
	staticHTTPS         = 7
	staticStatus        = 8
	staticContentLength = 28
	staticCookie        = 32
)

// staticNameIndex returns the index of a regular field name in the static table, or 0 if the table
// does not have the name. It omits Host and Transfer-Encoding, which the encoder never appends. It
// uses a switch, which the compiler turns into a search: a map takes three times as long.
func staticNameIndex(name string) uint64 {
	switch name {
	case "accept-charset":
		return 15
	case "accept-encoding":
		return 16
	case "accept-language":
		return 17
	case "accept-ranges":
		return 18
	case "accept":
		return 19
	case "access-control-allow-origin":
		return 20
	case "age":
		return 21
	case "allow":
		return 22
	case "authorization":
		return 23
	case "cache-control":
		return 24
	case "content-disposition":
		return 25
	case "content-encoding":
		return 26
	case "content-language":
		return 27
	case "content-length":
		return staticContentLength
	case "content-location":
		return 29
	case "content-range":
		return 30
	case "content-type":
		return 31
	case "cookie":
		return staticCookie
	case "date":
		return 33
	case "etag":
		return 34
	case "expect":
		return 35
	case "expires":
		return 36
	case "from":
		return 37
	}
	return staticNameIndexSecondHalf(name)
}

// staticNameIndexSecondHalf is the second half of staticNameIndex: the names from "if-match" on.
func staticNameIndexSecondHalf(name string) uint64 {
	switch name {
	case "if-match":
		return 39
	case "if-modified-since":
		return 40
	case "if-none-match":
		return 41
	case "if-range":
		return 42
	case "if-unmodified-since":
		return 43
	case "last-modified":
		return 44
	case "link":
		return 45
	case "location":
		return 46
	case "max-forwards":
		return 47
	case "proxy-authenticate":
		return 48
	case "proxy-authorization":
		return 49
	case "range":
		return 50
	case "referer":
		return 51
	case "refresh":
		return 52
	case "retry-after":
		return 53
	case "server":
		return 54
	case "set-cookie":
		return 55
	case "strict-transport-security":
		return 56
	case "user-agent":
		return 58
	case "vary":
		return 59
	case "via":
		return 60
	case "www-authenticate":
		return 61
	}
	return 0
}
