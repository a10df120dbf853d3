package conformance

import (
	"fmt"
	"strings"
)

// Beginnings of requests with a body, and a request that must not be smuggled.
const (
	post        = "POST / HTTP/1.1\r\nHost: h\r\n"
	postChunked = post + "Transfer-Encoding: chunked\r\n\r\n"
	smuggled    = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
)

func requestFramingCases() []ruleCase {
	cases := []ruleCase{
		{
			name: "a body with Content-Length keeps it", rfc: "9112 6.2",
			script: requestPasses(post + "Content-Length: 5\r\n\r\nhello"),
		},
		{
			name: "leading zeros of Content-Length are ignored", rfc: "9110 8.6",
			script: requestBecomes(post+"Content-Length: 0005\r\n\r\nhello", post+"Content-Length: 5\r\n\r\nhello"),
		},
		{
			name: "a POST without a body has Content-Length: 0", rfc: "9110 8.6",
			script: requestBecomes(post+"\r\n", post+"Content-Length: 0\r\n\r\n"),
		},
		{
			name: "a GET without a body has no Content-Length", rfc: "9110 8.6",
			script: requestPasses(get),
		},
		{
			name: "a chunked body stays chunked", rfc: "9112 7.1",
			script: script{clientSends(postChunked + "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"), originReceivesChunked(postChunked, "hello world", ""),
				originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "an empty chunked body stays chunked", rfc: "9112 7.1",
			script: script{clientSends(postChunked + "0\r\n\r\n"), originReceivesChunked(postChunked, "", ""), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "the name of a coding is case-insensitive and may have whitespace around it", rfc: "9112 7",
			script: script{clientSends(post + "Transfer-Encoding: \tChunKED \t\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), originReceivesChunked(postChunked, "hi", ""),
				originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a GET may have a chunked body", rfc: "9110 9.3.1",
			script: script{clientSends(requestStart + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
				originReceivesChunked(requestStart+"Transfer-Encoding: chunked\r\n\r\n", "hi", ""), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a coding in addition to chunked is not implemented", rfc: "9112 6.1",
			script: script{clientSends(post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + smuggled), rejected(501)},
		},
		{
			name: "a coding in addition to chunked in a separate field is not implemented", rfc: "9112 6.1",
			script: script{clientSends(post + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled), rejected(501)},
		},
	}
	return append(cases, append(invalidContentLengths(), invalidTransferEncodings()...)...)
}

// invalidContentLengths returns requests with an invalid Content-Length.
func invalidContentLengths() []ruleCase {
	var cases []ruleCase
	for _, value := range []string{"+1", "-1", "1,2", "1,1", "1, 1", "0x1", "", "1 1", "1.0", "1e1", "1_0", "1;a=b", `"1"`, "one", "\u0661",
		"9223372036854775808", "18446744073709551616", "18446744073709551617", strings.Repeat("9", 400)} {
		cases = append(cases, ruleCase{
			name: fmt.Sprintf("rejected: a length of %.24q", value), rfc: "9110 8.6",
			script: script{clientSends(post + "Content-Length: " + value + "\r\n\r\nx" + smuggled), rejected(400)},
		})
	}
	for name, fields := range pairs(
		"two different lengths", "Content-Length: 1\r\nContent-Length: 2\r\n",
		"two equal lengths", "Content-Length: 1\r\nContent-Length: 1\r\n",
		"two lengths, one of them zero", "Content-Length: 0\r\nContent-Length: 1\r\n",
		"two lengths far apart", "content-length: 1\r\nX-A: 1\r\nCONTENT-LENGTH: 11\r\n",
		"whitespace before the colon of a length", "Content-Length : 1\r\n",
		"whitespace before a length field", " Content-Length: 1\r\n",
		"NUL after a length", "Content-Length: 1\x00\r\n",
	) {
		cases = append(cases, ruleCase{
			name: "rejected: " + name, rfc: "9112 6.3",
			script: script{clientSends(post + fields + "\r\nx" + smuggled), rejected(400)},
		})
	}
	return cases
}

// invalidTransferEncodings returns requests with an invalid Transfer-Encoding, as used for request
// smuggling.
func invalidTransferEncodings() []ruleCase {
	var cases []ruleCase
	for name, fields := range pairs(
		"a length and chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
		"chunked and a length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
		"a length of zero and chunked", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
		"length and invalid coding", "Content-Length: 5\r\nTransfer-Encoding: identity\r\n",
		"a length, and chunked named in Connection", "Content-Length: 5\r\nConnection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n",
		"chunked, and a length named in Connection", "Transfer-Encoding: chunked\r\nConnection: content-length\r\nContent-Length: 5\r\n",
		"a coding that is not chunked", "Transfer-Encoding: gzip\r\n",
		"chunked that is not the last coding", "Transfer-Encoding: chunked, gzip\r\n",
		"chunked in a field before another coding", "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
		"the coding identity", "Transfer-Encoding: identity\r\n",
		"chunked and identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
		"chunked twice", "Transfer-Encoding: chunked, chunked\r\n",
		"chunked in two fields", "Transfer-Encoding: chunked\r\nTransfer-encoding: chunked\r\n",
		"an empty list of codings", "Transfer-Encoding:\r\n",
		"a coding that begins like chunked", "Transfer-Encoding: chunkedx\r\n",
		"a coding that ends like chunked", "Transfer-Encoding: xchunked\r\n",
		"chunked in quotes", "Transfer-Encoding: \"chunked\"\r\n",
		"chunked after a vertical tab", "Transfer-Encoding: \vchunked\r\n",
		"chunked before a form feed", "Transfer-Encoding: chunked\f\r\n",
		"chunked before NUL", "Transfer-Encoding: chunked\x00\r\n",
		"chunked after a bare CR", "Transfer-Encoding: \rchunked\r\n",
		"chunked after a bare LF", "Transfer-Encoding:\nchunked\r\n",
		"chunked on a folded line", "Transfer-Encoding:\r\n chunked\r\n",
		"chunked after whitespace before the colon", "Transfer-Encoding : chunked\r\n",
		"chunked after a tab before the colon", "Transfer-Encoding\t: chunked\r\n",
		"chunked after whitespace before the name", " Transfer-Encoding: chunked\r\n",
		"chunked after a bare LF in another field", "X-A: 1\nTransfer-Encoding: chunked\r\n",
		"chunked after a bare CR in another field", "X-A: 1\rTransfer-Encoding: chunked\r\n",
		"chunked followed by another word", "Transfer-Encoding: chunked chunked\r\n",
		"chunked after an empty member", "Transfer-Encoding: ,chunked\r\n",
		"chunked before an empty member", "Transfer-Encoding: chunked,\r\n",
		"chunked with a comma inside", "Transfer-Encoding: chun,ked\r\n",
		"chunked with a byte above ASCII", "Transfer-Encoding: chunked\xa0\r\n",
	) {
		cases = append(cases, ruleCase{
			name: "rejected: " + name, rfc: "9112 6.1, 6.3",
			script: script{clientSends(post + fields + "\r\n0\r\n\r\n" + smuggled), rejected(400)},
		})
	}
	return cases
}

// pairs yields its arguments in pairs of name and text.
func pairs(texts ...string) func(yield func(name, text string) bool) {
	return func(yield func(name, text string) bool) {
		for i := 0; i < len(texts); i += 2 {
			if !yield(texts[i], texts[i+1]) {
				return
			}
		}
	}
}

func responseFramingCases() []ruleCase {
	const chunked = responseStart + "Transfer-Encoding: chunked\r\n\r\n"
	cases := []ruleCase{
		{
			name: "a chunked body of a response stays chunked", rfc: "9112 7.1",
			script: script{clientSends(get), originReceives(get), originSends(chunked + "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"),
				clientReceivesChunked(chunked, "hello world", ""), carriesNextExchange},
		},
		{
			name: "a large chunked body is forwarded in both directions", rfc: "9112 7.1", wholeWritesOnly: true,
			script: script{clientSends(postChunked + "20000\r\n" + strings.Repeat(everyByte(), 512) + "\r\n0\r\n\r\n"),
				originReceivesChunked(postChunked, strings.Repeat(everyByte(), 512), ""),
				originSends(chunked + "20000\r\n" + strings.Repeat(everyByte(), 512) + "\r\n0\r\n\r\n"),
				clientReceivesChunked(chunked, strings.Repeat(everyByte(), 512), ""), carriesNextExchange},
		},
		{
			name: "a response body that ends with its connection becomes chunked", rfc: "9112 6.3",
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "\r\nhello"), originCloses, clientReceivesChunked(chunked, "hello", ""), carriesNextExchange},
		},
		{
			name: "an empty response body that ends with its connection becomes chunked", rfc: "9112 6.3",
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "\r\n"), originCloses, clientReceivesChunked(chunked, "", ""), carriesNextExchange},
		},
		{
			name: "an empty response keeps its Content-Length", rfc: "9110 8.6",
			script: responsePasses(emptyResponse),
		},
		{
			name: "a malformed response keeps the client connection", rfc: "9112 6.3",
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "Content-Length: x\r\n\r\n"), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		},
	}
	for name, fields := range pairs(
		"a length and chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
		"chunked and a length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
		"chunked that is not the last coding", "Transfer-Encoding: chunked, gzip\r\n",
		"a coding in addition to chunked", "Transfer-Encoding: gzip, chunked\r\n",
		"chunked twice", "Transfer-Encoding: chunked, chunked\r\n",
		"chunked on a folded line", "Transfer-Encoding:\r\n chunked\r\n",
		"chunked before NUL", "Transfer-Encoding: chunked\x00\r\n",
		"two different lengths", "Content-Length: 1\r\nContent-Length: 2\r\n",
		"a length with a sign", "Content-Length: +5\r\n",
		"a negative length", "Content-Length: -5\r\n",
		"a list of different lengths", "Content-Length: 5, 6\r\n",
		"a hexadecimal length", "Content-Length: 0x5\r\n",
		"an empty length", "Content-Length:\r\n",
		"a length with a space inside", "Content-Length: 5 5\r\n",
		"a length that overflows 64 bits", "Content-Length: 18446744073709551621\r\n",
		"a length that overflows 63 bits", "Content-Length: 9223372036854775808\r\n",
	) {
		cases = append(cases, ruleCase{
			name: "malformed response: " + name, rfc: "9112 6.3",
			script: script{clientSends(get), originReceives(get), originSends(responseStart + fields + "\r\n0\r\n\r\nhello"), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		})
	}
	return cases
}
