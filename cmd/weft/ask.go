package main

import (
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

// asking is how commands reach the admin port of a running Weft.
type asking struct {
	admin string // ip:port, or the path of a unix socket
	form  string // of what is printed: formText or formJSON
}

// The forms of what commands print.
const (
	formText = "text"
	formJSON = "json"
)

// usual is the admin port of the built-in example, and of those in configs.
const usual = "127.0.0.1:34901"

func (a *asking) flags(flags *pflag.FlagSet) {
	flags.StringVar(&a.admin, "admin", usual, "`ADDRESS` of the admin port: ip:port, or the path of a unix socket")
	flags.StringVarP(&a.form, "output", "o", formText, "`FORM` of what is printed: text or json")
}

// check says what is wrong with the flags.
func (a *asking) check() error {
	if a.form != formText && a.form != formJSON {
		return fmt.Errorf("--output %s: expected %s or %s", a.form, formText, formJSON)
	}
	return nil
}

// Bounds of what an admin port may take and answer.
const (
	askTimeout = 30 * time.Second
	mostAnswer = 1 << 30 // bytes
)

// get reads a page of the admin port into v.
func (a *asking) get(ctx context.Context, page string, query url.Values, v any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	host, network := a.admin, "tcp"
	if strings.Contains(a.admin, "/") || strings.HasPrefix(a.admin, "@") {
		host, network = "localhost", "unix"
	}
	u := url.URL{Scheme: "http", Host: host, Path: page, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, a.admin)
	}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("the admin port does not answer (--admin says where it is): %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // all of it that counts was read
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("admin port: %w", err)
	}
	if answer.StatusCode == http.StatusOK {
		return json.Unmarshal(text, v)
	}
	var problem struct{ Error string }
	if json.Unmarshal(text, &problem) != nil || problem.Error == "" {
		problem.Error = answer.Status
	}
	return errors.New(problem.Error)
}

// printed is something that is printed in either form.
type printed interface{ Text() string }

// print writes v in the form that was asked for.
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
