package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weft-proxy/weft/internal/admin"
)

// adminClient calls the admin port of a running Weft, or the API of Dubbo services.
type adminClient struct {
	address string // ip:port, or the path of a unix socket
	format  outputFormat

	target, addressFlag string // name of the server, and the flag that has its address; "": the admin port, --admin
	token               string // bearer token; "": none
}

// outputFormat is the output format of a command.
type outputFormat string

// The forms.
const (
	formatText outputFormat = "text"
	formatJSON outputFormat = "json"
)

func (f *outputFormat) flag(flags *pflag.FlagSet) {
	flags.StringVarP((*string)(f), "output", "o", string(formatText), "output `FORMAT`: text or json")
}

func (f outputFormat) check() error {
	if f != formatText && f != formatJSON {
		return fmt.Errorf("--output %s: expected %s or %s", string(f), formatText, formatJSON)
	}
	return nil
}

// defaultAdminAddress is the admin address of the built-in example, and of the files in configs.
const defaultAdminAddress = "127.0.0.1:34901"

func (a *adminClient) flags(flags *pflag.FlagSet) {
	flags.StringVar(&a.address, "admin", defaultAdminAddress, "`ADDRESS` of the admin port: ip:port, or the path of a unix socket")
	a.format.flag(flags)
}

// check returns an error if the flags are invalid.
func (a *adminClient) check() error { return a.format.check() }

// Limits of a request to the admin port.
const (
	requestTimeout   = 30 * time.Second
	maxResponseBytes = 1 << 30 // bytes
)

// get reads a page of the admin port into v.
func (a *adminClient) get(ctx context.Context, page string, query url.Values, v any) error {
	return a.do(ctx, http.MethodGet, page, query, v)
}

// do is get with another method. It also reads a response with status 422 into v, because it says
// what was rejected.
func (a *adminClient) do(ctx context.Context, method, page string, query url.Values, v any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	what, flag := a.target, a.addressFlag
	if what == "" {
		what, flag = "the admin port", "--admin"
	}
	host, network := a.address, "tcp"
	if strings.Contains(a.address, "/") || strings.HasPrefix(a.address, "@") {
		host, network = "localhost", "unix"
	}
	u := url.URL{Scheme: "http", Host: host, Path: page, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if a.token != "" {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, a.address)
	}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("%s does not respond (set its address with %s): %w", what, flag, err)
	}
	defer func() { _ = answer.Body.Close() }() // the body was read as far as needed
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusUnprocessableEntity:
		return json.Unmarshal(text, v)
	}
	var problem struct {
		admin.ErrorBody
		Message string `json:"err_msg"` // of the API of Dubbo services
	}
	_ = json.Unmarshal(text, &problem) // for other bodies the status is reported
	return errors.New(cmp.Or(problem.Error, problem.Message, answer.Status))
}

// printable is a value that can be printed in both forms.
type printable interface{ Text() string }

// print writes v in the form of the --output flag.
func (a *adminClient) print(w io.Writer, v printable) error {
	if a.format == formatText {
		_, err := io.WriteString(w, v.Text())
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
