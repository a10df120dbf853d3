package config

// Replies selects the local replies of a proxy: the responses that it sends itself.
type Replies struct {
	// Envoy sends the replies of Envoy: its statuses, texts and fields. Access logs then have the
	// flags of Envoy. Otherwise the replies are those of docs/errors.md.
	Envoy bool

	// The first mapper that matches changes a reply. Mappers and Body require Envoy.
	Mappers []ReplyMapper
	Body    *ReplyBody // body of the replies whose mapper has none; nil: the body stays
}

// ReplyMapper changes the local replies that match Filter.
type ReplyMapper struct {
	Filter  ExchangeFilter
	Status  int            // new status; 0: the status stays
	Text    *string        // new text, which %LOCAL_REPLY_BODY% of the body refers to; nil: the text stays
	Headers HeaderMutation // of the reply
	Body    *ReplyBody     // nil: Replies.Body
}

// ReplyBody is the format of a local reply's body: text or JSON. The formats in it have the
// operators of Envoy.
type ReplyBody struct {
	Text        string
	JSON        []JSONPart // if it is not empty, the body is JSON
	ContentType string     // "": text/plain or application/json
	OmitMissing bool       // a value that does not exist is empty text instead of "-"
}

// JSONPart is a piece of a JSON document: literal JSON and then, unless Format is "", the value of
// Format.
type JSONPart struct{ Literal, Format string }
