package frame

import "encoding/binary"

// The class names that SOFARPC puts into Bolt frames.
const (
	boltRequestClass = "com.alipay.sofa.rpc.core.request.SofaRequest"
	boltAnswerClass  = "com.alipay.sofa.rpc.core.response.SofaResponse"
)

// boltHeader returns the pairs as a header of Bolt.
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

// boltArguments returns the content of a call with one string: the object that
// describes it, and the argument. The trace id, if there is one, is a property.
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

// boltValue returns the content of an answer with a string.
func boltValue(value string) []byte {
	b := appendClass(nil, boltAnswerClass, "isError", "errorMsg", "appResponse", "responseProps")
	return append(appendSofa(append(b, 'F', 'N'), value), boltTrailer...)
}

// appendClass appends the definition of a class in SOFA's older Hessian and the
// beginning of an object of it, whose fields are to follow.
func appendClass(b []byte, name string, fields ...string) []byte {
	b = append(b, 'O', hessianZero+byte(len(name)))
	b = append(b, name...)
	b = append(b, hessianZero+byte(len(fields)))
	for _, field := range fields {
		b = appendSofa(b, field)
	}
	return append(b, 'o', hessianZero)
}

// appendSofa appends a string as SOFA's older Hessian does: it has no form
// between those of one byte and of two for the length.
func appendSofa(b []byte, s string) []byte {
	if len(s) <= tinyString {
		b = append(b, byte(len(s)))
	} else {
		b = append(b, 'S', byte(len(s)>>8), byte(len(s)))
	}
	return append(b, s...)
}
