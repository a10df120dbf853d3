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
	"time"

	"github.com/spf13/pflag"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/internal/unixaddr"
)

// adminClient calls the admin port of a running Weft, or the API of Dubbo services.
type adminClient struct {
	address string // ip:port, or the path of a unix socket
	format  outputFormat

	target, addressFlag string // name of the server and the flag with its address, for errors; "": the admin port, --admin
	token               string // bearer token; "": none
}

// outputFormat is the output format of a command.
type outputFormat string

// The output formats.
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

// defaultAdminAddress is the admin address of the built-in example.
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
	maxResponseBytes = 1 << 30
)

// get reads a page of the admin port into v.
func (a *adminClient) get(ctx context.Context, page string, query url.Values, v any) error {
	return a.do(ctx, http.MethodGet, page, query, v)
}

// do sends a request with any method, and reads the response into v. It also reads a response with
// status 422, which contains the reasons of a rejection, into v.
func (a *adminClient) do(ctx context.Context, method, page string, query url.Values, v any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	server, flag := a.target, a.addressFlag
	if server == "" {
		server, flag = "the admin port", "--admin"
	}
	address, isSocket, err := unixaddr.Parse(a.address)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	host, network := address, "tcp"
	if isSocket {
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
		return d.DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("%s does not respond (set its address with %s): %w", server, flag, err)
	}
	defer func() { _ = resp.Body.Close() }() // the body was read as far as needed
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusUnprocessableEntity:
		return json.Unmarshal(body, v)
	}
	var errBody struct {
		admin.ErrorBody
		Message string `json:"err_msg"` // in responses of the API of Dubbo services
	}
	_ = json.Unmarshal(body, &errBody) // on failure, the error is the status
	return errors.New(cmp.Or(errBody.Error, errBody.Message, resp.Status))
}

// printable is a value that can be printed in both output formats.
type printable interface{ Text() string }

// print writes v in the format of the --output flag.
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
