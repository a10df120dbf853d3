package resource

import (
	"strings"
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weft-proxy/weft/pkg/config"
)

// readTestReplies reads local_reply_config from JSON.
func readTestReplies(t *testing.T, text string) (config.Replies, *report) {
	t.Helper()
	m := &hcmv3.LocalReplyConfig{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	r := &report{}
	return fieldReader{r, ""}.readLocalReplies(m), r
}

func TestLocalReplies(t *testing.T) {
	got, r := readTestReplies(t, `{
		"mappers": [{
			"filter": {"status_code_filter": {"comparison": {"op": "EQ", "value": {"default_value": 503, "runtime_key": "k"}}}},
			"status_code": 504, "body": {"inline_string": "100 %"},
			"headers_to_add": [{"header": {"key": "x-a", "value": "b"}}],
			"body_format_override": {"text_format": "%LOCAL_REPLY_BODY%", "content_type": "text/html"}
		}],
		"body_format": {"omit_empty_values": true, "json_format": {"b": "%RESPONSE_CODE%", "a": {"list": [1, true, null, "x"]}, "empty": ""}}}`)
	if len(r.reasons) > 0 || len(r.ignored) > 0 {
		t.Fatalf("rejected %v, ignored %v", r.reasons, r.ignored)
	}
	text := "100 %"
	want := config.Replies{
		Envoy: true,
		Mappers: []config.ReplyMapper{{
			Filter: config.ExchangeFilter{Status: &config.Comparison{Op: config.EqualTo, Value: 503}}, Status: 504, Text: &text,
			Headers: config.HeaderMutation{Add: []config.HeaderValue{{Name: "x-a", Value: "b", Append: true, Empty: config.EmptySkipped}}},
			Body:    &config.ReplyBody{Text: "%LOCAL_REPLY_BODY%", ContentType: "text/html"},
		}},
		Body: &config.ReplyBody{OmitMissing: true, JSON: []config.JSONPart{
			{Literal: `{"a":{"list":[1,true,null,`, Format: "x"}, {Literal: `]},"b":`, Format: "%RESPONSE_CODE%"}, {Literal: `,"empty":""}`},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("replies (-want +got):\n%s", diff)
	}
}

func TestRejectedLocalReplies(t *testing.T) {
	const filter = `"filter": {"not_health_check_filter": {}}`
	for text, want := range map[string]string{
		`{"mappers": [{}]}`: "mappers[0].filter: is required",
		`{"mappers": [{` + filter + `, "status_code": 99}]}`:                   "status_code: is 99, expected 200 to 599",
		`{"mappers": [{` + filter + `, "body": {"filename": "/etc/passwd"}}]}`: "body: supports only inline_string and inline_bytes",
		`{"body_format": {"text_format": "%NOPE%"}}`:                           "NOPE",
		`{"body_format": {"json_format": {"a": {"b": "%NOPE%"}}}}`:             "json_format[a][b]",
		`{"body_format": {}}`: "body_format",
		`{"body_format": {"text_format": "x", "formatters": [{"name": "f"}]}}`: "formatters: is not supported",
	} {
		_, r := readTestReplies(t, text)
		found := false
		for _, reason := range r.reasons {
			found = found || strings.Contains(reason.String(), want)
		}
		if !found {
			t.Errorf("%s: rejected %v, want a reason with %q", text, r.reasons, want)
		}
	}
}
