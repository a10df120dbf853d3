package protocol

import (
	"errors"
	"io"
	"testing"
)

// newEnvoyExchange returns an exchange whose local replies are those of Envoy.
func newEnvoyExchange() *Exchange {
	x := &Exchange{EnvoyReplies: new(EnvoyReplies)}
	x.Reset()
	return x
}

// TestEnvoyReplies compares the local replies of failures, and what access logs have of them, with
// those of Envoy 1.40.
func TestEnvoyReplies(t *testing.T) {
	const begin = "upstream connect error or disconnect/reset before headers. "
	for name, tt := range map[string]struct {
		err      error
		attempts int
		status   int
		text     string
		details  string
		flags    string
	}{
		"no route":           {err: NewFault(ReasonNoRoute, nil), status: 404, details: "route_not_found", flags: "NR"},
		"no healthy host":    {err: NewFault(NoHealthyHost, nil), status: 503, text: "no healthy upstream", details: "no_healthy_upstream", flags: "UH"},
		"timeout":            {err: NewFault(UpstreamTimeout, nil), status: 504, text: "upstream request timeout", details: "response_timeout", flags: "UT"},
		"overflow":           {err: NewFault(Overflow, nil), status: 503, text: begin + "reset reason: overflow", details: "upstream_reset_before_response_started{overflow}", flags: "UO"},
		"connect failure":    {err: NewFault(ConnectFailure, nil), attempts: 1, status: 503, text: begin + "reset reason: remote connection failure", details: "upstream_reset_before_response_started{remote_connection_failure}", flags: "UF"},
		"second attempt":     {err: NewFault(UpstreamClosed, nil), attempts: 2, status: 503, text: begin + "retried and the latest reset reason: connection termination", details: "upstream_reset_before_response_started{connection_termination}", flags: "UC"},
		"TCP reset":          {err: NewFault(UpstreamReset, nil), status: 503, text: begin + "reset reason: connection termination", details: "upstream_reset_before_response_started{connection_termination}", flags: "UC"},
		"malformed response": {err: NewFault(UpstreamMalformed, nil), status: 502, text: begin + "reset reason: protocol error", details: "upstream_reset_before_response_started{protocol_error}", flags: "UPE"},
		"a reply of the fault": {err: NewFault(ConnectFailure, nil).WithEnvoyReply(EnvoyReply{ResetReason: "remote refused stream reset", Flag: "UR"}),
			status: 503, text: begin + "reset reason: remote refused stream reset", details: "upstream_reset_before_response_started{remote_refused_stream_reset}", flags: "UR"},
		"a transport failure": {err: NewFault(ConnectFailure, nil).WithEnvoyReply(EnvoyReply{ResetReason: "remote connection failure", TransportFailure: "delayed connect error: Connection refused"}),
			status: 503, text: begin + "reset reason: remote connection failure", details: "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused}", flags: "UF"},
		"a filter": {err: NewFault(ReasonDenied, nil).WithEnvoyReply(EnvoyReply{Body: "RBAC: access denied", Details: "rbac_access_denied_matched_policy[none]"}),
			status: 403, text: "RBAC: access denied", details: "rbac_access_denied_matched_policy[none]", flags: "-"},
		"no flag":      {err: NewFault(Unauthenticated, nil).WithEnvoyReply(EnvoyReply{Status: 403, Flag: NoEnvoyFlag}), status: 403, flags: "-"},
		"not a fault":  {err: io.EOF, status: 500, text: "Internal Server Error", details: "internal_error", flags: "-"},
		"disconnected": {err: NewFault(ReasonDownstreamDisconnect, nil), status: 499, details: "downstream_remote_disconnect", flags: "DC"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newEnvoyExchange()
			for range tt.attempts {
				x.Record.BeginAttempt(nil)
			}
			x.LocalReplyError(tt.err)
			if x.Response.Status != tt.status || x.LocalReplyBody() != tt.text || x.CodeDetails() != tt.details || x.FlagNames() != tt.flags {
				t.Errorf("reply %d %q, details %q, flags %q; want %d %q, %q, %q", x.Response.Status, x.LocalReplyBody(), x.CodeDetails(), x.FlagNames(),
					tt.status, tt.text, tt.details, tt.flags)
			}
			if contentType := x.Response.Header.Get("content-type"); tt.text != "" && contentType != "text/plain" {
				t.Errorf("content-type %q, want text/plain", contentType)
			}
		})
	}
}

// TestEveryReasonHasAnEnvoyReply verifies that no reason lacks a status or details.
func TestEveryReasonHasAnEnvoyReply(t *testing.T) {
	for r := range Reasons() {
		x := newEnvoyExchange()
		x.LocalReplyError(NewFault(r, nil))
		if x.CodeDetails() == "" || x.Response.Status == 0 {
			t.Errorf("%s: status %d, details %q", r, x.Response.Status, x.CodeDetails())
		}
	}
}

func TestOverloadFields(t *testing.T) {
	for field, err := range map[string]error{
		"x-envoy-overloaded":                  NewFault(Overflow, nil),
		"x-envoy-drop-overload":               NewFault(Dropped, nil),
		"x-envoy-unconditional-drop-overload": NewFault(Dropped, nil).WithEnvoyReply(EnvoyReply{Flag: "UDO"}),
	} {
		x := newEnvoyExchange()
		x.LocalReplyError(err)
		if got := x.Response.Header.Get(field); got != "true" {
			t.Errorf("%v: %s is %q, want true", err, field, got)
		}
	}
}

func TestCodeDetailsOfResponses(t *testing.T) {
	x := newEnvoyExchange()
	if got := x.CodeDetails(); got != "" {
		t.Errorf("without a response: %q, want none", got)
	}
	x.Response.Source, x.Response.Status = UpstreamResponse, 200
	if n := testing.AllocsPerRun(100, func() { _ = x.CodeDetails() }); n != 0 || x.CodeDetails() != "via_upstream" {
		t.Errorf("with a response of a host: %q with %v allocations, want via_upstream with 0", x.CodeDetails(), n)
	}
	x.RecordFailure(NewFault(UpstreamClosed, nil))
	if got := x.CodeDetails(); got != "upstream_reset_after_response_started{protocol_error}" || x.FlagNames() != "UPE" {
		t.Errorf("after an incomplete response: %q with flags %s", got, x.FlagNames())
	}
	x.RecordFailure(NewFault(UpstreamTimeout, nil))
	if x.Record.Reason != UpstreamClosed {
		t.Errorf("reason %s, want that of the first failure", x.Record.Reason)
	}
	x.Reset()
	if x.EnvoyReplies == nil || x.Record.EnvoyReply != nil {
		t.Error("Reset must keep EnvoyReplies, and clear Record.EnvoyReply")
	}
}

// TestEnvoyGRPCReplies verifies that the gRPC status follows from the HTTP status, and that the
// message is the text.
func TestEnvoyGRPCReplies(t *testing.T) {
	for name, tt := range map[string]struct {
		set           func(x *Exchange)
		code, message string
	}{
		"an error":        {func(x *Exchange) { x.LocalReplyError(NewFault(NoHealthyHost, nil)) }, "14", "no healthy upstream"},
		"without text":    {func(x *Exchange) { x.LocalReplyError(NewFault(ReasonNoRoute, nil)) }, "12", ""},
		"another status":  {func(x *Exchange) { x.LocalReplyError(NewFault(NoCluster, nil)); x.Response.Status = 500 }, "2", ""},
		"direct response": {func(x *Exchange) { x.LocalReply(200, TextPlain, "hi"); x.Record.EnvoyReply = &EnvoyReply{} }, "2", "hi"},
		"a gRPC service":  {func(x *Exchange) { x.LocalReply(200, "application/grpc", "frame") }, "", ""},
		"a set status": {func(x *Exchange) {
			x.LocalReplyError(NewFault(FaultInjected, nil))
			x.Response.Header.Add("grpc-status", "5")
		}, "5", "fault filter abort"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newEnvoyExchange()
			tt.set(x)
			ReplyGRPC(x, "application/grpc+proto")
			h := &x.Response.Header
			if h.Get("grpc-status") != tt.code || h.Get("grpc-message") != tt.message || h.Get("content-type") != "application/grpc" {
				t.Errorf("grpc-status %q, grpc-message %q, content-type %q; want %q, %q, application/grpc",
					h.Get("grpc-status"), h.Get("grpc-message"), h.Get("content-type"), tt.code, tt.message)
			}
		})
	}
}

func TestEnvoyReplyOf(t *testing.T) {
	reply := EnvoyReply{Body: "text"}
	fault := NewFault(ConnectFailure, io.EOF).WithEnvoyReply(reply)
	if got := EnvoyReplyOf(errors.Join(io.ErrUnexpectedEOF, fault)); got == nil || *got != reply {
		t.Errorf("EnvoyReplyOf = %v, want the reply of the fault", got)
	}
	if got := EnvoyReplyOf(NewFault(UpstreamTimeout, fault)); got != nil {
		t.Errorf("EnvoyReplyOf = %v, want nil: the outer fault has its reason's reply", got)
	}
	if got := EnvoyReplyOf(io.EOF); got != nil {
		t.Errorf("EnvoyReplyOf = %v, want nil", got)
	}
}

func TestOmitLength(t *testing.T) {
	x := newEnvoyExchange()
	x.LocalReply(404, "", "")
	if !x.EnvoyReplies.OmitLength(x) || x.Response.ContentLength != -1 {
		t.Errorf("content length %d, want -1", x.Response.ContentLength)
	}
	x.LocalReply(404, TextPlain, "text")
	if x.EnvoyReplies.OmitLength(x) || x.Response.ContentLength != 4 {
		t.Errorf("content length %d, want 4", x.Response.ContentLength)
	}
	x.LocalReply(404, "", "")
	if (*EnvoyReplies)(nil).OmitLength(x) || x.Response.ContentLength != 0 {
		t.Errorf("content length %d, want 0", x.Response.ContentLength)
	}
}
