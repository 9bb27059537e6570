// Command storagejob is a job that uses the storage of its project, as users' programs do: `put NAME TEXT` writes an object
// and `get NAME` prints one.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	of := func(name string) string { return os.Getenv("NAGELFLUH_STORAGE_" + name) }
	if os.Getenv("AWS_SECRET_ACCESS_KEY") != of("SECRET_ACCESS_KEY") || of("SECRET_ACCESS_KEY") == "" {
		return fmt.Errorf("the variables of S3 clients do not hold what ours do")
	}
	endpoint, bucket, key := of("ENDPOINT"), of("BUCKET"), of("PREFIX")+args[1]
	client := s3.New(s3.Options{
		Region: of("REGION"), BaseEndpoint: &endpoint, UsePathStyle: of("PATH_STYLE") == "true",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: of("ACCESS_KEY_ID"), SecretAccessKey: of("SECRET_ACCESS_KEY")}, nil
		}),
	})
	if args[0] == "put" {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(args[2])})
		return err
	}
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	_, err = io.Copy(os.Stdout, out.Body)
	return err
}
