package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/weft-proxy/weft/pkg/dubbo"
)

// endpoint is one of the POST paths.
type endpoint struct {
	path        string
	successText string // message of a successful call
	errorPrefix string // prefix of the error message
	operation   Operation
	options     *Options
}

// endpoints returns all endpoints. Existing clients depend on the texts.
func (o *Options) endpoints() []endpoint {
	return []endpoint{
		{"/pub", "publish success", "publish fail, err: ", o.Publish, o},
		{"/unpub", "unpub success", "unpub fail, err: ", o.Unpublish, o},
		{"/sub", "subscribe success", "subscribe fail, err: ", o.Subscribe, o},
		{"/unsub", "unsubscribe success", "unsubscribe fail, err: ", o.Unsubscribe, o},
	}
}

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	request, err := readRequest(r)
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		err = e.operation(ctx, request)
	}
	if err == nil {
		e.options.Count(e.path, OK)
		writeResponse(w, http.StatusOK, success, e.successText)
		return
	}
	status, result := statusOf(err)
	e.options.Count(e.path, result)
	if !e.options.StrictStatus {
		status = http.StatusOK
	}
	writeResponse(w, status, failure, e.errorText(err))
}

// errorText returns the message for an error. Errors of invalid requests have no prefix.
func (e *endpoint) errorText(err error) string {
	var fieldErr *dubbo.FieldError
	var bodyErr *bodyError
	if errors.As(err, &fieldErr) || errors.As(err, &bodyErr) {
		return err.Error()
	}
	return e.errorPrefix + err.Error()
}

// statusOf returns the status and result for an error.
func statusOf(err error) (int, Result) {
	var fieldErr *dubbo.FieldError
	var bodyErr *bodyError
	switch {
	case errors.As(err, &bodyErr):
		return bodyErr.status, Rejected
	case errors.As(err, &fieldErr):
		return http.StatusBadRequest, Rejected
	case errors.Is(err, dubbo.ErrNotFound):
		return http.StatusNotFound, Rejected
	case errors.Is(err, dubbo.ErrPending):
		return http.StatusServiceUnavailable, Failed
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, Failed
	}
	return http.StatusBadGateway, Failed
}

// The values of err_no.
const (
	success = 0
	failure = 1
)

// callResponse is the body of every response to a call.
type callResponse struct {
	Number int    `json:"err_no"`
	Text   string `json:"err_msg"`
}

func writeResponse(w http.ResponseWriter, status, number int, text string) {
	writeJSON(w, status, callResponse{number, text})
}

// writeJSON responds with v, which must be encodable. It ignores write errors, because the client
// has disconnected.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}
