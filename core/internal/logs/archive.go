package logs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/s3blob" // s3:// addresses
	"gocloud.dev/gcerrors"
)

// Archive keeps the logs of ended attempts: per attempt a manifest, and in the copy that it names per container instance
// that printed anything one object with exactly its bytes. Safe for concurrent use.
type Archive struct {
	bucket *blob.Bucket
	dir    string // of a local archive; empty: elsewhere
}

// OpenArchive opens the archive at a URL: file:///var/lib/nagelfluh/logs, or s3://bucket?region=…&prefix=logs/ as
// gocloud.dev/blob documents it (credentials come from the environment). A directory is made when it is missing.
func OpenArchive(ctx context.Context, address string) (*Archive, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("log archive %q: want a URL such as file:///var/lib/nagelfluh/logs or s3://bucket", address)
	}
	if u.Scheme == fileblob.Scheme {
		if u.Host != "" || u.RawQuery != "" || !filepath.IsAbs(filepath.FromSlash(u.Path)) {
			return nil, fmt.Errorf("log archive %q: want file:// and an absolute path, such as file:///var/lib/nagelfluh/logs", address)
		}
		return OpenArchiveDir(filepath.FromSlash(u.Path))
	}
	bucket, err := blob.OpenBucket(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("open log archive: %w", err)
	}
	return &Archive{bucket: bucket}, nil
}

// OpenArchiveDir opens the archive in a local directory and makes it when it is missing.
func OpenArchiveDir(dir string) (*Archive, error) {
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{
		CreateDir:   true,
		DirFileMode: 0o700,
		NoTempDir:   true, // a rename must not cross file systems
		Metadata:    fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, fmt.Errorf("open log archive: %w", err)
	}
	return &Archive{bucket: bucket, dir: dir}, nil
}

// Close releases the connection to the archive.
func (a *Archive) Close() error { return a.bucket.Close() }

// Manifest returns what the archive holds of an attempt; ErrMissing when it holds nothing whole.
func (a *Archive) Manifest(ctx context.Context, attemptID string) (Manifest, error) {
	data, err := a.bucket.ReadAll(ctx, manifestKey(attemptID))
	if gcerrors.Code(err) == gcerrors.NotFound {
		return Manifest{}, ErrMissing
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("read log manifest of attempt %s: %w", attemptID, err)
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, fmt.Errorf("read log manifest of attempt %s: %w", attemptID, err)
	}
	return m, nil
}

// Open reads one container instance's log from an offset on; ErrMissing when the archive does not hold it.
func (a *Archive) Open(ctx context.Context, attemptID, pod, container string, restart int32, offset int64) (io.ReadCloser, error) {
	m, err := a.Manifest(ctx, attemptID)
	if err != nil {
		return nil, err
	}
	return a.open(ctx, m, pod, container, restart, offset)
}

func (a *Archive) open(ctx context.Context, m Manifest, pod, container string, restart int32, offset int64) (io.ReadCloser, error) {
	if m.silent(pod, container, restart) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	r, err := a.bucket.NewRangeReader(ctx, objectKey(m.AttemptID, m.Copy, pod, container, restart), offset, -1, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("read archived log of pod %s, container %s: %w", pod, container, err)
	}
	return r, nil
}

// store writes one copy of an attempt's logs, whose text read gives, and last the manifest that names it. Where another
// server has stored the attempt meanwhile, its copy stays and this one goes: a leader that was paused must not lay what it
// could still read over what its successor had read whole.
func (a *Archive) store(ctx context.Context, m Manifest, read func(pod string, c ContainerLog) io.Reader) error {
	m.Copy = rand.Text()[:8]
	var written []string
	err := func() error {
		for _, p := range m.Pods {
			for _, c := range p.Containers {
				if c.Bytes == 0 {
					continue // the manifest says that there is nothing
				}
				key := objectKey(m.AttemptID, m.Copy, p.Name, c.Name, c.Restart)
				written = append(written, key)
				if err := a.put(ctx, key, read(p.Name, c)); err != nil {
					return fmt.Errorf("store log of pod %s, container %s: %w", p.Name, c.Name, err)
				}
			}
		}
		return a.seal(ctx, m)
	}()
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	stored, look := a.Manifest(ctx, m.AttemptID)
	if look == nil && stored.Copy == m.Copy {
		return err // it counts, but may not survive a power cut yet
	}
	if look == nil || errors.Is(look, ErrMissing) {
		for _, key := range written {
			_ = a.bucket.Delete(ctx, key) // what is left over is named by no manifest
		}
	}
	if look == nil {
		return nil
	}
	return err
}

// discardTimeout bounds the removal of a copy that does not count.
const discardTimeout = 5 * time.Second

func (a *Archive) put(ctx context.Context, key string, r io.Reader) error {
	if err := a.bucket.Upload(ctx, key, r, &blob.WriterOptions{ContentType: "application/octet-stream"}); err != nil {
		return err
	}
	return a.sync(key)
}

// seal stores the manifest, unless there is one, and so says that everything it names is there.
func (a *Archive) seal(ctx context.Context, m Manifest) error {
	m.StoredAt = time.Now().UTC().Truncate(time.Microsecond)
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode log manifest of attempt %s: %w", m.AttemptID, err)
	}
	key := manifestKey(m.AttemptID)
	if err := a.bucket.WriteAll(ctx, key, data, &blob.WriterOptions{ContentType: "application/json", IfNotExist: true}); err != nil {
		return fmt.Errorf("store log manifest of attempt %s: %w", m.AttemptID, err)
	}
	return a.sync(key)
}

// sync makes an object of a local archive survive a power cut: the Job is removed once its logs are stored.
func (a *Archive) sync(key string) error {
	if a.dir == "" {
		return nil
	}
	path := filepath.Join(a.dir, filepath.FromSlash(key))
	for {
		f, err := os.Open(path)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return fmt.Errorf("make archived log %s durable: %w", key, err)
		}
		if path == a.dir {
			return nil
		}
		path = filepath.Dir(path)
	}
}

func manifestKey(attemptID string) string { return attemptID + "/manifest.json" }

func objectKey(attemptID, copied, pod, container string, restart int32) string {
	return attemptID + "/" + copied + "/" + pod + "/" + fileName(container, restart)
}

// fileName names a container instance. Container names hold no dots.
func fileName(container string, restart int32) string {
	if restart == 0 {
		return container + ".log"
	}
	return fmt.Sprintf("%s.%d.log", container, restart)
}
