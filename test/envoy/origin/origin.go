// Package origin has recording origins for the comparison: HTTP/1.1, HTTP/2, TCP, HTTP behind the
// PROXY protocol, and TLS.
//
//	origin.go     the listeners and the records of a set of origins
//	directives.go how an origin responds: the x-o-* fields of a request
//	http1.go      HTTP/1.1, tunnels, the PROXY protocol
//	http2.go      HTTP/2
//	tcp.go        TCP
//
// The field X-Case of a request says to which case it belongs, so cases can run concurrently.
package origin

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// Protocol is what an origin expects on its connections.
type Protocol int

// The protocols of origins.
const (
	HTTP1 Protocol = iota // HTTP/1.1, and HTTP/2 with prior knowledge
	HTTP2
	TCP
	PROXY // a header of the PROXY protocol, then HTTP/1.1
	TLS   // HTTP/1.1 in TLS
	TLSH2 // HTTP/2 or HTTP/1.1 in TLS, by ALPN
)

// Spec names an origin.
type Spec struct {
	Name     string
	Protocol Protocol
}

// Specs returns the origins that every case can use.
func Specs() []Spec {
	return []Spec{
		{"o1", HTTP1}, {"o2", HTTP1}, {"o3", HTTP1}, {"o4", HTTP1}, {"o5", HTTP1}, {"o6", HTTP1},
		{"h1", HTTP2}, {"h2", HTTP2}, {"t1", TCP}, {"p1", PROXY}, {"s1", TLS}, {"s2", TLSH2},
	}
}

// Record is what an origin received: a request, or the bytes of a TCP connection.
type Record struct {
	Origin    string
	TCP       bool
	Line      string // request line, or "METHOD PATH HTTP/2"
	Fields    []wire.Field
	Body      []byte // or the bytes of a TCP connection or a tunnel
	Trailers  []wire.Field
	Proxy     string // the header of the PROXY protocol
	TLS       string // server name, ALPN, version, and the name of the client's certificate
	Continued bool   // the origin sent 100 Continue
}

// entry is a Record of a Set.
type entry struct {
	number int // in the order of arrival
	record *Record
}

// Set is a set of origins behind one proxy. Its methods are safe for concurrent use.
type Set struct {
	ports map[string]int // immutable

	mu        sync.Mutex
	count     int                // of all records, guarded by mu
	records   map[string][]entry // by X-Case; guarded by mu, also what the records contain
	listeners []net.Listener     // guarded by mu
	conns     map[net.Conn]bool  // guarded by mu
	closed    bool               // guarded by mu
	wait      sync.WaitGroup     // goroutines of listeners and connections
}

// Listen starts the origins of Specs on ports from freePort. Those with TLS have the certificate. The
// caller closes the set.
func Listen(freePort func(ip string) (int, error), certificate tls.Certificate) (*Set, error) {
	s := &Set{ports: map[string]int{}, records: map[string][]entry{}, conns: map[net.Conn]bool{}}
	for _, spec := range Specs() {
		port, err := freePort("127.0.0.1")
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.ports[spec.Name] = port
		s.listeners = append(s.listeners, l)
		s.wait.Go(func() { s.accept(l, spec, certificate) })
	}
	return s, nil
}

// Ports returns the port of each origin by name.
func (s *Set) Ports() map[string]int { return s.ports }

// Close stops the origins and returns when their goroutines have ended.
func (s *Set) Close() error {
	s.mu.Lock()
	s.closed = true
	var failures []error
	for _, l := range s.listeners {
		failures = append(failures, l.Close())
	}
	for conn := range s.conns {
		_ = conn.Close() // its goroutine may have closed it
	}
	s.mu.Unlock()
	s.wait.Wait()
	return errors.Join(failures...)
}

func (s *Set) accept(l net.Listener, spec Spec, certificate tls.Certificate) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // Close has closed the listener
		}
		if !s.add(conn) {
			continue
		}
		s.wait.Go(func() {
			defer s.remove(conn)
			s.serve(conn, spec, certificate)
		})
	}
}

func (s *Set) serve(conn net.Conn, spec Spec, certificate tls.Certificate) {
	c := &connection{Conn: conn, set: s, origin: spec.Name}
	switch spec.Protocol {
	case HTTP1:
		c.serveHTTP1()
	case HTTP2:
		c.serveHTTP2()
	case TCP:
		c.serveTCP()
	case PROXY:
		c.servePROXY()
	case TLS:
		c.serveTLS(certificate)
	case TLSH2:
		c.serveTLS(certificate, "h2", "http/1.1")
	}
}

// add registers a connection, or closes it if the set is closed.
func (s *Set) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Set) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[conn] {
		delete(s.conns, conn)
		_ = conn.Close() // the origin may have reset it
	}
}

// record adds a record and returns the number of earlier records of its case.
func (s *Set) record(r *Record) (earlier int) {
	id, _ := wire.Get(r.Fields, wire.CaseField)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.records[id] {
		if !e.record.TCP {
			earlier++
		}
	}
	s.count++
	s.records[id] = append(s.records[id], entry{s.count, r})
	return earlier
}

// update changes a record.
func (s *Set) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Take removes the records of cases and returns copies in the order of arrival. The id "" selects
// records without X-Case. An origin may still change what it received; the copies stay the same.
func (s *Set) Take(ids ...string) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var entries []entry
	for _, id := range ids {
		entries = append(entries, s.records[id]...)
		delete(s.records, id)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.number, b.number) })
	records := make([]Record, 0, len(entries))
	for _, e := range entries {
		r := *e.record
		r.Body = slices.Clone(r.Body)
		r.Trailers = slices.Clone(r.Trailers)
		records = append(records, r)
	}
	return records
}
