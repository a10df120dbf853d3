package frame

import "encoding/binary"

// Class names that SOFARPC writes into Bolt frames.
const (
	boltRequestClass  = "com.alipay.sofa.rpc.core.request.SofaRequest"
	boltResponseClass = "com.alipay.sofa.rpc.core.response.SofaResponse"
)

// boltHeader encodes the pairs as a Bolt header.
func boltHeader(pairs ...pair) []byte {
	var b []byte
	for _, p := range pairs {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.key)))
		b = append(b, p.key...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.value)))
		b = append(b, p.value...)
	}
	return b
}

// boltArguments encodes the content of a call with one string: the SofaRequest object and the
// argument. A nonempty trace becomes a request property.
func boltArguments(service, method, trace, argument string) []byte {
	b := appendClass(nil, boltRequestClass, "methodName", "methodArgSigs", "targetServiceUniqueName", "targetAppName", "requestProps")
	b = appendSofa(b, method)
	b = append(b, 'V', 't', 0, 17)
	b = append(b, "[java.lang.String"...)
	b = append(b, 'n', 1)
	b = append(appendSofa(b, "java.lang.String"), 'z')
	b = append(appendSofa(b, service), 'N')
	b = appendSofa(appendSofa(append(b, 'M'), "service"), service)
	if trace != "" {
		b = appendSofa(appendSofa(b, "rpc_trace_context.sofaTraceId"), trace)
	}
	return appendSofa(append(b, 'z'), argument)
}

// boltValue encodes the content of a response with a string.
func boltValue(value string) []byte {
	b := appendClass(nil, boltResponseClass, "isError", "errorMsg", "appResponse", "responseProps")
	return append(appendSofa(append(b, 'F', 'N'), value), boltTrailer...)
}

// appendClass appends a class definition in SOFA's older Hessian, and starts an object of that
// class. The caller appends the fields.
func appendClass(b []byte, name string, fields ...string) []byte {
	b = append(b, 'O', hessianZero+byte(len(name)))
	b = append(b, name...)
	b = append(b, hessianZero+byte(len(fields)))
	for _, field := range fields {
		b = appendSofa(b, field)
	}
	return append(b, 'o', hessianZero)
}

// appendSofa appends a string in SOFA's older Hessian, which has only the one-byte and the two-byte
// length.
func appendSofa(b []byte, s string) []byte {
	if len(s) <= maxTinyString {
		b = append(b, byte(len(s)))
	} else {
		b = append(b, 'S', byte(len(s)>>8), byte(len(s)))
	}
	return append(b, s...)
}
