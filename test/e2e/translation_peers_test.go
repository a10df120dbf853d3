package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// messageSeparator separates the messages of one exchange in the notation of the translation tests.
// In both HTTP versions a message is its request line ("GET /t shop.test") or status, its headers
// in lower case, and, after empty lines, its body and its trailers. Interim responses come first.
//
//	POST /t shop.test
//	content-length: 5
//
//	hello
//
//	x-sum: 5
//
// Tests send HTTP/2 in the same notation, with pseudo-headers, and HTTP/1.1 as text. In both,
// symbols stand for bytes that must not be in a message; see replaceSymbols. "(cut)", "(end)" or
// the code of a reset follows a message that ends early.
const messageSeparator = "\n---\n"

// closeMark at the end of an HTTP/1.1 text makes the origin close the connection, and the client
// half-close it.
const closeMark = "✂"

// replaceSymbols replaces symbols with the bytes that they stand for.
func replaceSymbols(s string) string {
	return strings.NewReplacer("␊", "\n", "␍", "\r", "␀", "\x00").Replace(s)
}

// http1Text returns a text as HTTP/1.1 sends it, with CRLF at the end of lines.
func http1Text(s string) string { return replaceSymbols(strings.ReplaceAll(s, "\n", "\r\n")) }

// notation returns a message in the notation.
func notation(startLine string, fields []string, body string, trailers []string) string {
	slices.Sort(fields)
	s := strings.Join(append([]string{startLine}, fields...), "\n")
	if body != "" || len(trailers) > 0 {
		s += "\n\n" + body
	}
	if len(trailers) > 0 {
		slices.Sort(trailers)
		s += "\n\n" + strings.Join(trailers, "\n")
	}
	return s
}

// isAddedByWeft reports whether Weft adds a header with this name.
func isAddedByWeft(name string) bool {
	return name == "via" || name == "date" || name == "server" || strings.HasPrefix(name, "x-forwarded-")
}

// http1Reader reads HTTP/1.1 messages without validation.
type http1Reader struct{ *bufio.Reader }

// section reads lines up to an empty line: a start line if startLine is set, and headers.
func (r http1Reader) section(startLine bool) (line string, fields []string, err error) {
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return line, fields, err
		}
		text = strings.TrimSuffix(text, "\r\n")
		switch {
		case text == "":
			return line, fields, nil
		case startLine:
			line, startLine = text, false
		default:
			name, value, _ := strings.Cut(text, ": ")
			fields = append(fields, strings.ToLower(name)+": "+value)
		}
	}
}

// takeHeader removes a header and returns its value.
func takeHeader(fields *[]string, name string) string {
	i := slices.IndexFunc(*fields, func(f string) bool { return strings.HasPrefix(f, name+": ") })
	if i < 0 {
		return ""
	}
	value := (*fields)[i][len(name)+2:]
	*fields = slices.Delete(*fields, i, i+1)
	return value
}

// withoutWeftHeaders removes the headers that Weft adds.
func withoutWeftHeaders(fields []string) []string {
	return slices.DeleteFunc(fields, func(f string) bool {
		name, _, _ := strings.Cut(f[1:], ": ")
		return isAddedByWeft(f[:1] + name)
	})
}

// readBody removes Connection and Transfer-Encoding from fields, and reads the body and the
// trailers. If withoutBody is set, the message has no body.
func (r http1Reader) readBody(fields *[]string, withoutBody bool) (body string, trailers []string, err error) {
	takeHeader(fields, "connection")
	chunked := takeHeader(fields, "transfer-encoding") == "chunked"
	if withoutBody {
		return "", nil, nil
	}
	if chunked {
		for {
			size, err := r.ReadString('\n')
			if err != nil {
				return body, nil, err
			}
			n, err := strconv.ParseInt(strings.TrimSpace(size), 16, 32)
			if err != nil || n == 0 {
				break
			}
			chunk := make([]byte, n+2)
			if _, err := io.ReadFull(r, chunk); err != nil {
				return body, nil, err
			}
			body += string(chunk[:n])
		}
		_, trailers, err = r.section(false)
		return body, trailers, err
	}
	for _, f := range *fields {
		if length, ok := strings.CutPrefix(f, "content-length: "); ok {
			n, err := strconv.Atoi(length)
			if err != nil {
				return "", nil, err
			}
			payload := make([]byte, n)
			n, err = io.ReadFull(r, payload)
			return string(payload[:n]), nil, err
		}
	}
	return "", nil, nil
}

// request reads a complete request.
func (r http1Reader) request() (string, error) {
	line, fields, err := r.section(true)
	if err != nil {
		return "", err
	}
	body, trailers, err := r.readBody(&fields, false)
	host := takeHeader(&fields, "host")
	return notation(strings.TrimSuffix(line, "HTTP/1.1")+host, withoutWeftHeaders(fields), body, trailers), err
}

// responses reads the responses to a request, up to the final one.
func (r http1Reader) responses(isHEAD bool) string {
	out := ""
	for {
		line, fields, err := r.section(true)
		if err != nil {
			return out + "(end)"
		}
		status := strings.Fields(line)[1]
		interim := status[0] == '1' && status != "101"
		body, trailers, err := r.readBody(&fields, interim || isHEAD || status == "204" || status == "304")
		out += notation(status, withoutWeftHeaders(fields), body, trailers)
		switch {
		case err != nil:
			return out + "(cut)"
		case !interim:
			return out
		}
		out += messageSeparator
	}
}

// http2Peer is one end of an HTTP/2 connection. It does not validate the frames that it sends.
type http2Peer struct {
	conn  net.Conn
	fr    *http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
}

func newHTTP2Peer(conn net.Conn) *http2Peer {
	p := &http2Peer{conn: conn, fr: http2.NewFramer(conn, conn)}
	p.enc = hpack.NewEncoder(&p.block)
	p.fr.AllowIllegalWrites = true
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	_ = conn.SetDeadline(time.Now().Add(4 * waitTimeout)) // the next read reports an error
	return p
}

// headers sends a header section. Each of fields is "name: value".
func (p *http2Peer) headers(stream uint32, fields []string, end bool) error {
	p.block.Reset()
	for _, f := range fields {
		name, value, _ := strings.Cut(f[1:], ": ")
		if err := p.enc.WriteField(hpack.HeaderField{Name: f[:1] + name, Value: replaceSymbols(value)}); err != nil {
			return err
		}
	}
	return p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.block.Bytes(), EndStream: end, EndHeaders: true})
}

// send sends messages in the notation.
func (p *http2Peer) send(stream uint32, messages string) error {
	list := strings.Split(messages, messageSeparator)
	for i, m := range list {
		part := strings.SplitN(m, "\n\n", 3)
		last := i == len(list)-1
		if err := p.headers(stream, strings.Split(part[0], "\n"), last && len(part) == 1); err != nil {
			return err
		}
		if len(part) > 1 {
			if err := p.fr.WriteData(stream, len(part) == 2, []byte(part[1])); err != nil {
				return err
			}
		}
		if len(part) > 2 {
			if err := p.headers(stream, strings.Split(part[2], "\n"), true); err != nil {
				return err
			}
		}
	}
	return nil
}

// message reads a message to its end, from stream or, if that is 0, from the next stream.
// firstLine returns the first line for the pseudo-headers.
func (p *http2Peer) message(stream uint32, firstLine func(pseudo map[string]string) string) (text string, streamID uint32, err error) {
	var line, body string
	var fields []string
	started := false
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return text + "(end)", stream, err
		}
		if id := f.Header().StreamID; id != 0 && id != stream && stream != 0 {
			continue
		}
		ended := false
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = p.fr.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame:
			if started {
				return text + notation(line, fields, body, nil) + "(cut)", stream, io.ErrUnexpectedEOF
			}
			return text + fmt.Sprintf("(%v)", f.ErrCode), stream, io.ErrUnexpectedEOF
		case *http2.MetaHeadersFrame:
			stream, ended = f.StreamID, f.StreamEnded()
			pseudo, regular := splitPseudo(f)
			if started {
				return text + notation(line, fields, body, regular), stream, nil
			}
			line, fields = firstLine(pseudo), withoutWeftHeaders(regular)
			if started = len(line) != 3 || line[0] != '1'; !started {
				text += notation(line, fields, "", nil) + messageSeparator
			}
		case *http2.DataFrame:
			body += string(f.Data())
			ended = f.StreamEnded()
		}
		if err != nil {
			return text, stream, err
		}
		if ended {
			return text + notation(line, fields, body, nil), stream, nil
		}
	}
}

// splitPseudo splits a header section into pseudo-headers and other headers.
func splitPseudo(f *http2.MetaHeadersFrame) (pseudo map[string]string, regular []string) {
	pseudo = make(map[string]string)
	for _, field := range f.Fields {
		if field.IsPseudo() {
			pseudo[field.Name] = field.Value
		} else {
			regular = append(regular, field.Name+": "+field.Value)
		}
	}
	return pseudo, regular
}

// request reads a complete request.
func (p *http2Peer) request() (text string, stream uint32, err error) {
	return p.message(0, func(pseudo map[string]string) string {
		return pseudo[":method"] + " " + pseudo[":path"] + " " + pseudo[":authority"]
	})
}

// requestHTTP1 sends a request over HTTP/1.1 and returns the responses.
func requestHTTP1(t *testing.T, address, request string) string {
	t.Helper()
	c := dialRaw(t, address)
	text, closes := strings.CutSuffix(request, closeMark)
	if _, err := io.WriteString(c, http1Text(text)); err != nil {
		t.Fatal(err)
	}
	if closes {
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	return http1Reader{c.r}.responses(strings.HasPrefix(request, "HEAD "))
}

// requestHTTP2 sends a request over HTTP/2 and returns the responses. The default is GET /t; "-"
// before a pseudo-header removes it.
func requestHTTP2(t *testing.T, address, request string) string {
	t.Helper()
	p := newHTTP2Peer(dialRaw(t, address).Conn)
	if _, err := io.WriteString(p.conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := p.fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	head, tail, hasBody := strings.Cut(request, "\n\n")
	if hasBody {
		tail = "\n\n" + tail
	}
	if err := p.send(1, withPseudo(head)+tail); err != nil {
		t.Fatal(err)
	}
	got, _, _ := p.message(1, func(pseudo map[string]string) string { return pseudo[":status"] })
	return got
}

// withPseudo adds the default pseudo-headers to a request.
func withPseudo(head string) string {
	out := []string{":method: GET", ":scheme: http", ":authority: shop.test", ":path: /t"}
	for line := range strings.Lines(head) {
		line = strings.TrimSuffix(line, "\n")
		field := strings.TrimPrefix(line, "-")
		i := -1
		if name, _, ok := strings.Cut(field[1:], ": "); ok && field[0] == ':' {
			i = slices.IndexFunc(out, func(f string) bool { return strings.HasPrefix(f, ":"+name+": ") })
		}
		switch {
		case i < 0:
			out = append(out, line)
		case field != line:
			out = slices.Delete(out, i, i+1)
		default:
			out[i] = line
		}
	}
	return strings.Join(out, "\n")
}
