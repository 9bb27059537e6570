package faultproxy

import "net/http"

// Expired opens a watch and ends it with the event that says that its resourceVersion is too old: the error comes in the
// stream, after a status of 200. Gone is the same said as an answer.
func Expired() Fault {
	return Answer(http.StatusOK, http.Header{"Content-Type": {"application/json;stream=watch"}},
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}`+"\n")
}
