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

	"github.com/weft-proxy/weft/pkg/registry"
)

const (
	// requestTimeout is the timeout of the connect to a server, of the TLS handshake, and of the
	// response head. A request to one server has twice this time in total.
	requestTimeout = 3 * time.Second
	// maxBody bounds a response, in bytes.
	maxBody = 16 << 20
	// tokenRenewPercent is the percentage of a token's lifetime after which the client logs in
	// again.
	tokenRenewPercent = 80
)

// client sends requests to one of several servers, and fails over to the next. It is safe for
// concurrent use.
type client struct {
	// immutable
	servers            []string
	http               *http.Client
	username, password string
	logins             chan struct{} // semaphore for logins; capacity 1

	mu          sync.Mutex
	current     int       // guarded by mu; index of the server in use
	token       string    // guarded by mu; "": none
	tokenExpiry time.Time // guarded by mu; when the token is renewed
}

func newClient(servers []string, o registry.Options) *client {
	dialer := &net.Dialer{Timeout: requestTimeout}
	transport := &http.Transport{
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   requestTimeout,
		ResponseHeaderTimeout: requestTimeout,
		MaxIdleConnsPerHost:   2 * maxWorkers,
		IdleConnTimeout:       time.Minute,
	}
	if o.TLS != nil {
		transport.TLSClientConfig = o.TLS.Clone()
	}
	return &client{
		servers: servers,
		http: &http.Client{
			Transport: transport,
			Timeout:   2 * requestTimeout,
			// A redirect would send the token to another server.
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
		panic(fmt.Sprintf("nacos: invalid server %q: %v", c.servers[c.current], err))
	}
	return u.Host
}

// statusError is a response with a status other than 200.
type statusError struct {
	status int
	text   string // the beginning of the body
}

// Error returns the status and the beginning of the body.
func (e *statusError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("status %d", e.status)
	}
	return fmt.Sprintf("status %d: %s", e.status, e.text)
}

// isUnavailable reports whether an error means that no server is available, as opposed to a
// rejection or an invalid response.
func isUnavailable(err error) bool {
	var statusErr *statusError
	if errors.As(err, &statusErr) {
		return statusErr.status == http.StatusBadGateway || statusErr.status == http.StatusServiceUnavailable || statusErr.status == http.StatusGatewayTimeout
	}
	var respErr *responseError
	return err != nil && !errors.As(err, &respErr) && !errors.Is(err, context.Canceled)
}

// responseError is the error of a request to which a server responded with status 200, but without
// a usable result.
type responseError struct{ error }

// Unwrap returns the reason.
func (e *responseError) Unwrap() error { return e.error }

// request is a request to a server.
type request struct {
	method, path string
	form         url.Values  // sent in the body of a POST, and in the query of other requests
	header       http.Header // additional headers; may be nil
}

// call sends a request. It tries the next server after every error except a status below 500. It
// logs in once more if the server rejects the token.
func (c *client) call(ctx context.Context, req request) (body []byte, err error) {
	retriedLogin := false
	for attempts := 0; attempts < len(c.servers); {
		c.mu.Lock()
		index := c.current
		c.mu.Unlock()
		var token string
		if token, err = c.authToken(ctx, index); err == nil {
			body, err = c.send(ctx, index, req, token)
		}
		var statusErr *statusError
		if err == nil || ctx.Err() != nil {
			return body, err
		}
		if errors.As(err, &statusErr) && statusErr.status < http.StatusInternalServerError {
			if !retriedLogin && token != "" && (statusErr.status == http.StatusForbidden || statusErr.status == http.StatusUnauthorized) {
				retriedLogin = true
				c.dropToken(token)
				continue
			}
			return nil, err
		}
		c.mu.Lock()
		if c.current == index {
			c.current = (index + 1) % len(c.servers)
		}
		c.mu.Unlock()
		attempts++
	}
	return nil, err
}

// send sends a request to one server.
func (c *client) send(ctx context.Context, index int, r request, token string) ([]byte, error) {
	target, form := c.servers[index]+r.path, ""
	if r.method == http.MethodPost {
		form = r.form.Encode()
	} else {
		target += "?" + r.form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, r.header)
	if form != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded;charset=UTF-8")
	}
	req.Header.Set("User-Agent", "weft")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	case resp.StatusCode != http.StatusOK:
		const limit = 200
		return nil, &statusError{resp.StatusCode, strings.ToValidUTF8(strings.TrimSpace(string(body[:min(limit, len(body))])), "")}
	case len(body) > maxBody:
		return nil, &responseError{fmt.Errorf("%s %s: the response has more than %d bytes", r.method, r.path, maxBody)}
	}
	return body, nil
}

// withoutURL removes the URL from an error, because it is long and may contain a password.
func withoutURL(err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}

// authToken returns a valid token, after a login if necessary, or "" if the client has no
// username.
func (c *client) authToken(ctx context.Context, index int) (string, error) {
	if c.username == "" {
		return "", nil
	}
	if token := c.cachedToken(); token != "" {
		return token, nil
	}
	select {
	case c.logins <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-c.logins }()
	if token := c.cachedToken(); token != "" {
		return token, nil // another goroutine has logged in
	}
	body, err := c.send(ctx, index, request{
		method: http.MethodPost, path: "/v1/auth/login",
		form: url.Values{"username": {c.username}, "password": {c.password}},
	}, "")
	if err != nil {
		return "", fmt.Errorf("login: %w", err)
	}
	token, lifetime, err := parseToken(body)
	if err != nil {
		return "", &responseError{err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.tokenExpiry = token, time.Now().Add(lifetime*tokenRenewPercent/100)
	return token, nil
}

// cachedToken returns the token, or "" if the client must log in.
func (c *client) cachedToken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.tokenExpiry) {
		return c.token
	}
	return ""
}

// dropToken discards a token that a server rejected.
func (c *client) dropToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == token {
		c.token, c.tokenExpiry = "", time.Time{}
	}
}
