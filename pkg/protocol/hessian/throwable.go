package hessian

// Throwable is a Java exception as far as a proxy makes one: the value of a Dubbo
// answer of kind 0 or 3.
type Throwable struct {
	// Class is its class in full, which the caller has to have, as
	// "java.lang.RuntimeException" or "org.apache.dubbo.rpc.RpcException". One that
	// it has not becomes a map there; Dubbo's callers in Go have the exceptions of
	// java.lang, but not RpcException.
	Class string
	// Message is what getMessage returns.
	Message string
	// Code is the field "code" of an RpcException, whose constants say what the
	// numbers mean. A zero is not written: it is what Java has without.
	Code int32
}

// AppendThrowable appends v and the definition of its class, to a body in which
// no class was defined before.
//
// Of the fields of java.lang.Throwable it writes two. "detailMessage" is the
// message. "stackTrace" is empty: readers that make the object by its
// constructor would show their own stack as that of the fault, and those that do
// without a constructor would have none, on which Throwable of old versions
// fails. "cause" and "suppressedExceptions" are left to the constructor, or to
// null, which both mean that there is none.
func AppendThrowable(dst []byte, v Throwable) []byte {
	const firstClass = 0x60 // an object of the first class that was defined
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
	dst = AppendString(append(dst, 0x70), "[java.lang.StackTraceElement") // a list of none
	if v.Code != 0 {
		dst = AppendInt(dst, v.Code)
	}
	return dst
}
