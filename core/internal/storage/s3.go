package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

const (
	// testLimit bounds a whole test, stepLimit each of its requests.
	testLimit = 15 * time.Second
	stepLimit = 10 * time.Second
	// maxAnswer bounds what is read of one answer.
	maxAnswer = 1 << 20
)

// S3Tester tests backends with a real object. It is safe for concurrent use.
type S3Tester struct {
	// Dial makes connections; it refuses the addresses that the operator forbids. Required.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Limit bounds a whole test. Zero: 15 s.
	Limit time.Duration
}

// Test writes a small object below the prefix, reads it and deletes it again. It ends within its limit or with ctx, asks each
// thing once, follows no redirect and uses no proxy.
func (t S3Tester) Test(ctx context.Context, b Backend) Report {
	limit := t.Limit
	if limit == 0 {
		limit = testLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	step, class, code := t.run(ctx, b)
	r := Report{
		OK: class == OK, Class: class, TestedAt: began.UTC().Truncate(time.Microsecond),
		TookMS: float64(time.Since(began).Microseconds()) / 1000,
	}
	where := fmt.Sprintf("bucket %q at %s", b.Bucket, b.Endpoint)
	if class == OK {
		r.Message = "wrote, read and deleted an object in " + where
		return r
	}
	r.Step = step
	if code != "" {
		code = " (" + code + ")"
	}
	r.Message = fmt.Sprintf("%s an object in %s: %s%s", step, where, remedies[class], code)
	return r
}

func (t S3Tester) run(ctx context.Context, b Backend) (step string, class Class, code string) {
	transport := &http.Transport{
		DialContext: t.Dial, TLSHandshakeTimeout: stepLimit, ResponseHeaderTimeout: stepLimit, DisableKeepAlives: false, MaxIdleConns: 1,
		ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
	}
	defer transport.CloseIdleConnections()
	client := s3.New(s3.Options{
		Region: b.Region, BaseEndpoint: &b.Endpoint, UsePathStyle: b.PathStyle, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: b.Credentials.AccessKeyID, SecretAccessKey: b.Credentials.SecretAccessKey,
				SessionToken: b.Credentials.SessionToken}, nil
		}),
		HTTPClient: &http.Client{
			Transport:     bounded{transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		// Servers other than the first one do not all know the newer checksums.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})
	text := "nagelfluh storage test " + rand.Text()
	key := b.Prefix + "/.nagelfluh-test-" + rand.Text()
	if b.Prefix == "" {
		key = key[1:]
	}
	put := func(ctx context.Context) error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.Bucket, Key: &key, Body: bytes.NewReader([]byte(text))})
		return err
	}
	get := func(ctx context.Context) error {
		out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.Bucket, Key: &key})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		got, err := io.ReadAll(out.Body)
		if err == nil && string(got) != text {
			err = errContent
		}
		return err
	}
	del := func(ctx context.Context) error {
		_, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.Bucket, Key: &key})
		return err
	}
	if err := within(ctx, put); err != nil {
		class, code = classify(err)
		return "put", class, code
	}
	got := within(ctx, get)
	gone := within(ctx, del) // also when it could not be read: nothing is left behind
	switch {
	case got != nil:
		class, code = classify(got)
		return "get", class, code
	case gone != nil:
		class, code = classify(gone)
		return "delete", class, code
	}
	return "", OK, ""
}

var errContent = errors.New("the object differs")

func within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	return do(ctx)
}

// bounded cuts answers.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// codeForm is what the code of an S3 error looks like. Nothing else of an answer is shown: a server may repeat what it was
// sent.
var codeForm = regexp.MustCompile(`^[A-Z][A-Za-z]{2,40}$`)

// codes give the class of the error codes that S3 servers use.
var codes = map[string]Class{
	"NoSuchBucket": Bucket, "InvalidBucketName": Bucket,
	"PermanentRedirect": Region, "TemporaryRedirect": Region, "AuthorizationHeaderMalformed": Region, "IllegalLocationConstraintException": Region,
	"InvalidAccessKeyId": Credential, "SignatureDoesNotMatch": Credential, "InvalidToken": Credential, "ExpiredToken": Credential,
	"InvalidClientTokenId": Credential, "XAdminUserNotFound": Credential, "TokenRefreshRequired": Credential,
	"AccessDenied": Permissions, "AllAccessDisabled": Permissions, "AccountProblem": Permissions, "NoSuchKey": Content,
	"NotFound":             NotS3, // what the client makes of a 404 that says nothing
	"RequestTimeTooSkewed": Clock, "SlowDown": Server, "InternalError": Server, "ServiceUnavailable": Server,
}

func classify(err error) (Class, string) {
	if errors.Is(err, errContent) {
		return Content, ""
	}
	var api smithy.APIError
	var answer *awshttp.ResponseError
	answered := errors.As(err, &answer) && answer.HTTPStatusCode() != 0 // it also wraps that there was none
	if errors.As(err, &api) {
		if class, known := codes[api.ErrorCode()]; known {
			return class, api.ErrorCode()
		}
	}
	if answered {
		return classifyStatus(answer.HTTPStatusCode(), api)
	}
	switch kube.Classify(err) {
	case kube.DNS:
		return DNS, ""
	case kube.Denied:
		return Denied, ""
	case kube.Refused:
		return Refused, ""
	case kube.Timeout, kube.Canceled:
		return Timeout, ""
	case kube.Broken:
		return Broken, ""
	case kube.TLS, kube.Credentials:
		return TLS, ""
	case kube.NotKubernetes: // what HTTP cannot read
		return NotS3, ""
	}
	return Other, ""
}

// classifyStatus goes by the status of an answer whose code says nothing that is known here.
func classifyStatus(status int, api smithy.APIError) (Class, string) {
	code := ""
	if api != nil && codeForm.MatchString(api.ErrorCode()) && api.ErrorCode() != "UnknownError" {
		code = api.ErrorCode()
	}
	said := fmt.Sprintf("HTTP %d", status)
	if code != "" {
		said += " " + code
	}
	switch {
	case status >= 300 && status < 400 && code != "":
		return Region, said
	case status >= 500:
		return Server, said
	case code == "":
		return NotS3, said
	case status == http.StatusUnauthorized:
		return Credential, said
	case status == http.StatusForbidden:
		return Permissions, said
	}
	return Other, said
}
