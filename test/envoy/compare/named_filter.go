package compare

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// inFilters returns the differences that stay, and that concern single filters.
func inFilters() []Named { return slices.Concat(inCodings(), inReplies()) }

// inReplies returns the differences that stay, and that concern local replies of filters.
func inReplies() []Named {
	return []Named{
		{
			Name:   "limit of buffer",
			Text:   "The filter `buffer` rejects every body above `max_request_bytes`. Envoy forwards such a body if all of it arrives in one piece.",
			Reason: "The limit does not depend on how the body is divided into frames and segments.",
			matches: func(r *Result, _ Difference) bool {
				return r.Feature == "buffer" && slices.Equal(r.envoy["resp.status"], []string{"200"}) && slices.Equal(r.weft["resp.status"], []string{"413"})
			},
		},
		{
			Name:   "grpc_status of fault",
			Text:   "If the filter `fault` aborts a request with `grpc_status`, clients of other protocols get the HTTP status for it. Envoy sends 200.",
			Reason: "The client would take the fault for a success.",
			matches: func(r *Result, _ Difference) bool {
				return r.Feature == "fault" && slices.Equal(r.envoy["resp.status"], []string{"200"}) &&
					slices.Equal(r.envoy["resp.body"], []string{"fault filter abort"}) && slices.Equal(r.weft["resp.status"], []string{"503"})
			},
		},
	}
}

// inCodings returns the differences that stay, and that concern content codings.
func inCodings() []Named {
	isFeature := func(r *Result, name string) bool { return strings.TrimPrefix(r.Feature, "filter.") == name }
	return []Named{
		{
			Name:   "identity and gzip",
			Text:   "If a client accepts the identity coding and another one equally, the filter `compressor` compresses. Envoy uses the coding that comes first.",
			Reason: "RFC 9110, section 12.5.3, gives the order no meaning, and the compressed response is smaller.",
			matches: func(r *Result, _ Difference) bool {
				return isFeature(r, "compressor") && slices.Contains(r.c.Fields, wire.Field{Name: "Accept-Encoding", Value: "identity, gzip"}) &&
					r.envoy["resp.headers.content-encoding"] == nil && slices.Equal(r.weft["resp.headers.content-encoding"], []string{"gzip"})
			},
		},
		{
			Name:   "responses to HEAD",
			Text:   "The filter `compressor` removes `content-length` from a response to HEAD if it would compress the response to GET.",
			Reason: "The length would be that of another body (RFC 9110, section 9.3.2).",
			matches: func(r *Result, d Difference) bool {
				return isFeature(r, "compressor") && r.c.Method == "HEAD" && d.Aspect == "resp.headers.content-length" && d.Weft == nil
			},
		},
		{
			Name:   "vary without a body",
			Text:   "The filter `compressor` does not add `vary: Accept-Encoding` to responses without a body, such as 204. Envoy does.",
			Reason: "There is nothing that could vary.",
			matches: func(r *Result, d Difference) bool {
				return isFeature(r, "compressor") && d.Aspect == "resp.headers.vary" && slices.Equal(r.weft["resp.status"], []string{"204"}) && d.Weft == nil
			},
		},
		{
			Name:   "several content codings",
			Text:   "The filter `decompressor` forwards a message with several content codings unchanged. Envoy removes the first coding, although another one was applied after it.",
			Reason: "Content codings are listed in the order in which they were applied (RFC 9110, section 8.4).",
			matches: func(r *Result, d Difference) bool {
				return isFeature(r, "decompressor") && slices.Contains(r.c.Fields, wire.Field{Name: "Content-Encoding", Value: "gzip, br"}) && strings.HasPrefix(d.Aspect, "o0.")
			},
		},
	}
}

// inTrailers returns the differences in trailers that should go away.
func inTrailers() []Named {
	return []Named{{
		Name: "sizes in trailers",
		Text: "Envoy adds the sizes before and after decompression to the trailers of a message.",
		matches: func(_ *Result, d Difference) bool {
			return strings.HasSuffix(d.Aspect, ".trailers") && d.Weft == nil &&
				!slices.ContainsFunc(d.Envoy, func(t string) bool { return !strings.HasPrefix(t, "x-envoy-decompressor-") })
		},
	}}
}
