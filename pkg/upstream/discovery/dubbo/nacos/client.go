package nacos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

const (
	// answerIn is how long a server may take to answer before the next one is asked.
	answerIn = 3 * time.Second
	// mostBody bounds an answer, in bytes.
	mostBody = 16 << 20
	// mostToken is the share of a token's life that it is used for, in percent.
	mostToken = 80
)

// client asks one of several servers, the next one when that is away. Safe for concurrent
// use.
type client struct {
	// immutable
	servers            []string
	http               *http.Client
	username, password string
	logins             chan struct{} // held by who logs in; capacity 1

	mu      sync.Mutex
	current int       // guarded by mu; the server that answered last
	token   string    // guarded by mu; "": none
	until   time.Time // guarded by mu; when another token is asked for
}

func newClient(servers []string, o registry.Options) *client {
	dialer := &net.Dialer{Timeout: answerIn}
	transport := &http.Transport{
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   answerIn,
		ResponseHeaderTimeout: answerIn,
		MaxIdleConnsPerHost:   2 * mostWorkers,
		IdleConnTimeout:       time.Minute,
	}
	if o.TLS != nil {
		transport.TLSClientConfig = o.TLS.Clone()
	}
	return &client{
		servers: servers,
		http: &http.Client{
			Transport: transport,
			Timeout:   2 * answerIn,
			// A redirection would take the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		username: o.Username,
		password: o.Password,
		logins:   make(chan struct{}, 1),
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// server returns the server in use, as host:port.
func (c *client) server() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, err := url.Parse(c.servers[c.current])
	if err != nil {
		panic(fmt.Sprintf("the server %q: %v", c.servers[c.current], err))
	}
	return u.Host
}

// statusError is an answer that is not 200.
type statusError struct {
	status int
	text   string // the beginning of the body
}

// Error says what the server said.
func (r *statusError) Error() string {
	if r.text == "" {
		return fmt.Sprintf("status %d", r.status)
	}
	return fmt.Sprintf("status %d: %s", r.status, r.text)
}

// isAway reports whether an error says that no server could be asked, and not that one
// has refused, or has answered what is no answer.
func isAway(err error) bool {
	var r *statusError
	if errors.As(err, &r) {
		return r.status == http.StatusBadGateway || r.status == http.StatusServiceUnavailable || r.status == http.StatusGatewayTimeout
	}
	var answer *answerError
	return err != nil && !errors.As(err, &answer) && !errors.Is(err, context.Canceled)
}

// answerError is an answer with the status 200 that cannot be read.
type answerError struct{ error }

// Unwrap returns what is wrong with it.
func (e *answerError) Unwrap() error { return e.error }

// request is what a server is asked.
type request struct {
	method, path string
	form         url.Values  // of POST in the body, else in the query
	header       http.Header // more of it; nil: none
}

// call asks, another server if one is away or has a fault of its own, and again with
// another token if the one it had is refused. The body is of 16 MiB at most.
func (c *client) call(ctx context.Context, q request) (body []byte, err error) {
	renewed := false
	for tries := 0; tries < len(c.servers); {
		c.mu.Lock()
		at := c.current
		c.mu.Unlock()
		var token string
		if token, err = c.authorized(ctx, at); err == nil {
			body, err = c.ask(ctx, at, q, token)
		}
		var r *statusError
		if err == nil || ctx.Err() != nil {
			return body, err
		}
		if errors.As(err, &r) && r.status < http.StatusInternalServerError {
			if !renewed && token != "" && (r.status == http.StatusForbidden || r.status == http.StatusUnauthorized) {
				renewed = true
				c.drop(token)
				continue
			}
			return nil, err
		}
		c.mu.Lock()
		if c.current == at {
			c.current = (at + 1) % len(c.servers)
		}
		c.mu.Unlock()
		tries++
	}
	return nil, err
}

// ask asks one server.
func (c *client) ask(ctx context.Context, at int, q request, token string) ([]byte, error) {
	target, content := c.servers[at]+q.path, ""
	if q.method == http.MethodPost {
		content = q.form.Encode()
	} else {
		target += "?" + q.form.Encode()
	}
	hq, err := http.NewRequestWithContext(ctx, q.method, target, strings.NewReader(content))
	if err != nil {
		return nil, err
	}
	maps.Copy(hq.Header, q.header)
	if content != "" {
		hq.Header.Set("Content-Type", "application/x-www-form-urlencoded;charset=UTF-8")
	}
	hq.Header.Set("User-Agent", "weft")
	if token != "" {
		hq.Header.Set("Authorization", "Bearer "+token)
	}
	hr, err := c.http.Do(hq)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = hr.Body.Close() }() // what is needed of it was read
	body, err := io.ReadAll(io.LimitReader(hr.Body, mostBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", q.method, q.path, err)
	case hr.StatusCode != http.StatusOK:
		const most = 200
		return nil, &statusError{hr.StatusCode, strings.ToValidUTF8(strings.TrimSpace(string(body[:min(most, len(body))])), "")}
	case len(body) > mostBody:
		return nil, &answerError{fmt.Errorf("%s %s: the answer has more than %d bytes", q.method, q.path, mostBody)}
	}
	return body, nil
}

// plain takes the URL, which is long and may have a password, out of an error.
func plain(err error) error {
	var wrong *url.Error
	if errors.As(err, &wrong) {
		return wrong.Err
	}
	return err
}

// authorized returns a token that counts, of a login if there is none; "": none is
// needed.
func (c *client) authorized(ctx context.Context, at int) (string, error) {
	if c.username == "" {
		return "", nil
	}
	if token := c.valid(); token != "" {
		return token, nil
	}
	select {
	case c.logins <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-c.logins }()
	if token := c.valid(); token != "" {
		return token, nil // another has logged in
	}
	body, err := c.ask(ctx, at, request{
		method: http.MethodPost, path: "/v1/auth/login",
		form: url.Values{"username": {c.username}, "password": {c.password}},
	}, "")
	if err != nil {
		return "", fmt.Errorf("login: %w", err)
	}
	token, lasts, err := parseToken(body)
	if err != nil {
		return "", &answerError{err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.until = token, time.Now().Add(lasts*mostToken/100)
	return token, nil
}

// valid returns the token if it counts.
func (c *client) valid() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return c.token
	}
	return ""
}

// drop forgets a token that was refused.
func (c *client) drop(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == token {
		c.token, c.until = "", time.Time{}
	}
}
