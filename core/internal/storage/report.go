package storage

import "time"

// Class says what kind of thing came out of a test. The words are stable.
type Class string

// Classes of a test's outcome.
const (
	OK          Class = "ok"
	DNS         Class = "dns"         // the host name has no address
	Denied      Class = "denied"      // the operator's dial policy forbids the address
	Refused     Class = "refused"     // nothing listens, or no route
	Timeout     Class = "timeout"     // no answer in time
	Broken      Class = "connection"  // the connection ended before the answer did
	TLS         Class = "tls"         // no TLS, or a certificate that does not verify
	NotS3       Class = "not-s3"      // something answers that is no S3 server
	Bucket      Class = "bucket"      // there is no such bucket
	Region      Class = "region"      // the bucket is in another region, or behind another endpoint
	Credential  Class = "credentials" // unknown, wrong or expired
	Permissions Class = "permissions" // known, and may not do this
	Clock       Class = "clock"       // the two clocks differ too much
	Content     Class = "content"     // what was read is not what was written
	Server      Class = "server"      // the server failed
	Other       Class = "other"
)

// Report is what a test found. It holds nothing of the credentials.
type Report struct {
	OK       bool      `json:"ok"`
	Class    Class     `json:"class"`
	Step     string    `json:"step,omitempty"` // put, get or delete: where it failed
	Message  string    `json:"message"`        // one sentence, with the remedy when it failed
	TestedAt time.Time `json:"tested_at"`
	TookMS   float64   `json:"took_ms"`
}

// remedies end the sentence about a failure.
var remedies = map[Class]string{
	DNS:         "the name of the server has no address: check the endpoint; for virtual-hosted style the bucket's name is put before it, so path style may be what is missing",
	Denied:      "the address is one that this server does not connect to: the operator can allow it with kube.allow_cidrs",
	Refused:     "nothing listens there: check host and port of the endpoint",
	Timeout:     "there was no answer in time: check the endpoint and the firewalls between",
	Broken:      "the connection ended before the answer did: check the endpoint and what stands between",
	TLS:         "the TLS connection could not be made: check the certificate of the endpoint, or whether it is plain http",
	NotS3:       "what answers there is no S3 server: check the endpoint",
	Bucket:      "there is no such bucket: create it, or check its name and whether path style is needed",
	Region:      "the bucket is in another region or behind another endpoint: check both",
	Credential:  "the credentials are not accepted: check access key, secret key and, for temporary ones, the session token and its end",
	Permissions: "the credentials may not do this: they need PutObject, GetObject and DeleteObject below the prefix",
	Clock:       "the clocks of this server and of the storage differ too much: set them right",
	Content:     "what was read is not what was written: something between changes it",
	Server:      "the storage server failed: try again, and look into its log",
	Other:       "the request failed",
}
