package http1

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Heads as real programs send them.
const (
	curlHead = "GET /status?verbose=1 HTTP/1.1\r\n" +
		"Host: 127.0.0.1:8080\r\n" +
		"User-Agent: curl/7.88.1\r\n" +
		"Accept: */*\r\n" +
		"Accept-Encoding: gzip\r\n" +
		"X-Request-Id: 6c0b035a1609\r\n\r\n"

	browserHead = "GET /shop/articles/42?color=blue&size=xl HTTP/1.1\r\n" +
		"Host: shop.example.com\r\n" +
		"Connection: keep-alive\r\n" +
		"Cache-Control: max-age=0\r\n" +
		"sec-ch-ua: \"Chromium\";v=\"124\", \"Not-A.Brand\";v=\"99\"\r\n" +
		"sec-ch-ua-mobile: ?0\r\n" +
		"sec-ch-ua-platform: \"Linux\"\r\n" +
		"Upgrade-Insecure-Requests: 1\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Safari/537.36\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n" +
		"Sec-Fetch-Site: same-origin\r\n" +
		"Sec-Fetch-Mode: navigate\r\n" +
		"Sec-Fetch-Dest: document\r\n" +
		"Accept-Encoding: gzip, deflate, br\r\n" +
		"Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n" +
		"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n"

	nginxHead = "HTTP/1.1 200 OK\r\n" +
		"Server: nginx/1.22.1\r\n" +
		"Date: Sat, 21 Nov 2026 04:44:38 GMT\r\n" +
		"Content-Type: text/plain\r\n" +
		"Content-Length: 1024\r\n" +
		"Last-Modified: Fri, 20 Nov 2026 10:00:00 GMT\r\n" +
		"Connection: keep-alive\r\n" +
		"ETag: \"673db6a0-400\"\r\n" +
		"Accept-Ranges: bytes\r\n\r\n"
)

func BenchmarkParseRequest(b *testing.B) {
	for _, tt := range []struct{ name, head string }{{"curl", curlHead}, {"browser", browserHead}} {
		b.Run(tt.name, func(b *testing.B) {
			head := []byte(tt.head)
			var req protocol.Request
			var f Framing
			b.SetBytes(int64(len(head)))
			b.ReportAllocs()
			for b.Loop() {
				if n, err := ParseRequest(head, largeLimits, &req, &f); n != len(head) {
					b.Fatalf("parsed %d bytes, %v; want the complete head", n, err)
				}
			}
		})
	}
}

func BenchmarkParseResponse(b *testing.B) {
	head := []byte(nginxHead)
	var resp protocol.Response
	var f Framing
	b.SetBytes(int64(len(head)))
	b.ReportAllocs()
	for b.Loop() {
		if n, err := ParseResponse(head, largeLimits, "GET", &resp, &f); n != len(head) {
			b.Fatalf("parsed %d bytes, %v; want the complete head", n, err)
		}
	}
}

func BenchmarkAppendRequest(b *testing.B) {
	for _, tt := range []struct{ name, head string }{{"curl", curlHead}, {"browser", browserHead}} {
		b.Run(tt.name, func(b *testing.B) {
			var req protocol.Request
			var f Framing
			if n, err := ParseRequest([]byte(tt.head), largeLimits, &req, &f); n == 0 {
				b.Fatalf("parsed %d bytes, %v; want the complete head", n, err)
			}
			dst := make([]byte, 0, 4<<10)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := AppendRequest(dst, &req, RequestOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendResponse(b *testing.B) {
	var resp protocol.Response
	var f Framing
	if n, err := ParseResponse([]byte(nginxHead), largeLimits, "GET", &resp, &f); n == 0 {
		b.Fatalf("parsed %d bytes, %v; want the complete head", n, err)
	}
	dst := make([]byte, 0, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		_ = AppendResponse(dst, &resp, ResponseOptions{Minor: 1})
	}
}

func BenchmarkChunkReader(b *testing.B) {
	var coded []byte
	for range 16 {
		coded = AppendChunkHead(coded, 1024)
		coded = append(append(coded, make([]byte, 1024)...), "\r\n"...)
	}
	coded = AppendLastChunk(coded, nil)
	var c ChunkReader
	b.SetBytes(int64(len(coded)))
	b.ReportAllocs()
	for b.Loop() {
		c.Reset()
		for rest := coded; ; {
			n, _, done, err := c.Next(rest, largeLimits, nil)
			if err != nil {
				b.Fatal(err)
			}
			if done {
				break
			}
			rest = rest[n:]
		}
	}
}
