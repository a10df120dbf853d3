package hessian

// Throwable is a Java exception that Weft generates, as the value of a Dubbo response.
type Throwable struct {
	// Class is the full name of the class, which the client must have, such as
	// "java.lang.RuntimeException" or "org.apache.dubbo.rpc.RpcException". The client reads an
	// object of an unknown class as a map. Dubbo clients in Go have the exceptions of java.lang,
	// but not RpcException.
	Class string
	// Message is the result of getMessage.
	Message string
	// Code is the field "code" of an RpcException; its constants define the meaning. A zero is not
	// written, because it is the default in Java.
	Code int32
}

// AppendThrowable appends the definition of v's class, then v. The body before it must not define a
// class.
//
// AppendThrowable writes two fields of java.lang.Throwable: "detailMessage" with the message, and
// an empty "stackTrace". Without a stack trace, readers that call the constructor would show their
// own stack as the stack of the error. In readers that do not call the constructor, old versions of
// Throwable would fail. "cause" and "suppressedExceptions" keep the value of the constructor, or
// null, which both mean none.
func AppendThrowable(dst []byte, v Throwable) []byte {
	const firstClass = 0x60 // an object of the first defined class
	fields := int32(2)
	if v.Code != 0 {
		fields = 3
	}
	dst = AppendString(append(dst, 'C'), v.Class)
	dst = AppendInt(dst, fields)
	dst = AppendString(dst, "detailMessage")
	dst = AppendString(dst, "stackTrace")
	if v.Code != 0 {
		dst = AppendString(dst, "code")
	}
	dst = append(dst, firstClass)
	dst = AppendString(dst, v.Message)
	dst = AppendString(append(dst, 0x70), "[java.lang.StackTraceElement") // an empty list
	if v.Code != 0 {
		dst = AppendInt(dst, v.Code)
	}
	return dst
}
