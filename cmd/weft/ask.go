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
)

// asking calls the admin port of a running Weft, or the API of Dubbo services.
type asking struct {
	admin string // ip:port, or the path of a unix socket
	form  outputForm

	what, flag string // name of the server, and the flag that has its address; "": the admin port, --admin
	token      string // bearer token; "": none
}

// outputForm is the output format of a command.
type outputForm string

// The forms.
const (
	formText outputForm = "text"
	formJSON outputForm = "json"
)

func (f *outputForm) flag(flags *pflag.FlagSet) {
	flags.StringVarP((*string)(f), "output", "o", string(formText), "output `FORMAT`: text or json")
}

func (f outputForm) check() error {
	if f != formText && f != formJSON {
		return fmt.Errorf("--output %s: expected %s or %s", string(f), formText, formJSON)
	}
	return nil
}

// usual is the admin address of the built-in example, and of the files in configs.
const usual = "127.0.0.1:34901"

func (a *asking) flags(flags *pflag.FlagSet) {
	flags.StringVar(&a.admin, "admin", usual, "`ADDRESS` of the admin port: ip:port, or the path of a unix socket")
	a.form.flag(flags)
}

// check returns an error if the flags are invalid.
func (a *asking) check() error { return a.form.check() }

// Limits of a request to the admin port.
const (
	askTimeout = 30 * time.Second
	mostAnswer = 1 << 30 // bytes
)

// get reads a page of the admin port into v.
func (a *asking) get(ctx context.Context, page string, query url.Values, v any) error {
	return a.ask(ctx, http.MethodGet, page, query, v)
}

// ask is get with another method. It also reads a response with status 422 into v, because it says
// what was rejected.
func (a *asking) ask(ctx context.Context, method, page string, query url.Values, v any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	what, flag := a.what, a.flag
	if what == "" {
		what, flag = "the admin port", "--admin"
	}
	host, network := a.admin, "tcp"
	if strings.Contains(a.admin, "/") || strings.HasPrefix(a.admin, "@") {
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
		return d.DialContext(ctx, network, a.admin)
	}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("%s does not respond (set its address with %s): %w", what, flag, err)
	}
	defer func() { _ = answer.Body.Close() }() // the body was read as far as needed
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusUnprocessableEntity {
		return json.Unmarshal(text, v)
	}
	var problem struct {
		Error   string `json:"error"`
		Message string `json:"err_msg"`
	}
	_ = json.Unmarshal(text, &problem) // for other bodies the status is reported
	return errors.New(cmp.Or(problem.Error, problem.Message, answer.Status))
}

// printed is a value that can be printed in both forms.
type printed interface{ Text() string }

// print writes v in the form of the --output flag.
func (a *asking) print(w io.Writer, v printed) error {
	if a.form == formText {
		_, err := io.WriteString(w, v.Text())
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
