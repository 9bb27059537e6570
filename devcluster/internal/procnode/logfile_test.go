package procnode

import (
	"context"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// at returns the time of the test clock after some seconds.
func at(seconds int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// written returns a log to which chunks were written, one a second.
func written(t *testing.T, chunks ...string) *logFile {
	t.Helper()
	log, err := newLogFile(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	for i, chunk := range chunks {
		if err := log.append([]byte(chunk), at(i)); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

func read(t *testing.T, log *logFile, options logOptions) string {
	t.Helper()
	reader, err := log.open(options)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var source io.Reader = reader
	if size, _ := log.snapshot(); size < 1000 {
		source = iotest.OneByteReader(reader) // the hardest way
	}
	text, err := io.ReadAll(source)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogRead(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	const stamp0, stamp1, stamp2 = "2026-01-02T03:04:05.000000000Z ", "2026-01-02T03:04:06.000000000Z ", "2026-01-02T03:04:07.000000000Z "
	long := strings.Repeat("x", 5<<20)
	for name, test := range map[string]struct {
		chunks  []string
		options logOptions
		want    string
	}{
		"nothing":                    {nil, logOptions{}, ""},
		"nothing, with times":        {nil, logOptions{timestamps: true}, ""},
		"as it was":                  {[]string{"a\nb\n", "c"}, logOptions{}, "a\nb\nc"},
		"bytes":                      {[]string{"\xff\x00\r", "\n\xc3", "\xa4"}, logOptions{}, "\xff\x00\r\n\xc3\xa4"},
		"times":                      {[]string{"a\nb\n", "c"}, logOptions{timestamps: true}, stamp0 + "a\n" + stamp0 + "b\n" + stamp1 + "c"},
		"a line in pieces":           {[]string{"a", "b", "c\nd"}, logOptions{timestamps: true}, stamp0 + "abc\n" + stamp2 + "d"},
		"empty lines":                {[]string{"\n\n", "\n"}, logOptions{timestamps: true}, stamp0 + "\n" + stamp0 + "\n" + stamp1 + "\n"},
		"tail":                       {[]string{"a\nb\n", "c\n"}, logOptions{tail: number(2)}, "b\nc\n"},
		"tail, unfinished":           {[]string{"a\nb\n", "c"}, logOptions{tail: number(1)}, "c"},
		"tail longer than the log":   {[]string{"a\n"}, logOptions{tail: number(9)}, "a\n"},
		"tail of nothing":            {[]string{"a\n"}, logOptions{tail: number(0)}, ""},
		"tail with times":            {[]string{"a\nb\n", "c\n"}, logOptions{tail: number(2), timestamps: true}, stamp0 + "b\n" + stamp1 + "c\n"},
		"since":                      {[]string{"a\n", "b\n", "c\n"}, logOptions{since: at(1)}, "b\nc\n"},
		"since between":              {[]string{"a\n", "b\n", "c\n"}, logOptions{since: at(1).Add(1)}, "c\n"},
		"since the end":              {[]string{"a\n", "b\n"}, logOptions{since: at(9)}, ""},
		"since, then tail":           {[]string{"a\n", "b\n", "c\n"}, logOptions{since: at(1), tail: number(1)}, "c\n"},
		"tail reaches before since":  {[]string{"a\n", "b\n", "c\n"}, logOptions{since: at(2), tail: number(3)}, "c\n"},
		"limit":                      {[]string{"abcdef\n"}, logOptions{limit: number(3)}, "abc"},
		"limit counts times":         {[]string{"abcdef\n"}, logOptions{limit: number(33), timestamps: true}, stamp0 + "ab"},
		"a line of five million x's": {[]string{"a\n", long, "\nb"}, logOptions{tail: number(2)}, long + "\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			log := written(t, test.chunks...)
			log.finish()
			if got := read(t, log, test.options); got != test.want {
				t.Errorf("got %.200q (%d bytes); want %.200q (%d bytes)", got, len(got), test.want, len(test.want))
			}
			test.options.follow, test.options.ctx = true, t.Context()
			if got := read(t, log, test.options); got != test.want {
				t.Errorf("followed: got %.200q; want %.200q", got, test.want)
			}
		})
	}
}

func TestLogFollow(t *testing.T) {
	log := written(t, "old\n")
	zero := int64(0)
	reader, err := log.open(logOptions{follow: true, ctx: t.Context(), tail: &zero})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	buffer := make([]byte, 100)
	for _, chunk := range []string{"one\n", "tw", "o\n"} {
		got := make(chan string)
		go func() {
			n, err := reader.Read(buffer)
			if err != nil {
				t.Error(err)
			}
			got <- string(buffer[:n])
		}()
		time.Sleep(10 * time.Millisecond) // most likely it waits by now
		if err := log.append([]byte(chunk), at(5)); err != nil {
			t.Fatal(err)
		}
		if text := <-got; text != chunk {
			t.Errorf("got %q; want %q", text, chunk)
		}
	}
	time.AfterFunc(10*time.Millisecond, log.finish)
	if n, err := reader.Read(buffer); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}
}

func TestLogFollowEndsWithItsContext(t *testing.T) {
	log := written(t)
	defer log.finish()
	ctx, cancel := context.WithCancel(t.Context())
	reader, err := log.open(logOptions{follow: true, ctx: ctx})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	time.AfterFunc(10*time.Millisecond, cancel)
	if n, err := reader.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestLastBytes(t *testing.T) {
	log := written(t, "one\ntwo\n", "three\n")
	log.finish()
	for want, limits := range map[string][2]int64{"two\nthree\n": {2, 100}, "ree\n": {2, 4}, "one\ntwo\nthree\n": {80, 2048}} {
		if got := log.lastBytes(limits[0], limits[1]); got != want {
			t.Errorf("%v: got %q; want %q", limits, got, want)
		}
	}
}

func TestParseLogOptions(t *testing.T) {
	now := at(100)
	query, _ := url.ParseQuery("follow=true&timestamps=true&tailLines=0&limitBytes=7&sinceSeconds=30&previous=true")
	options, previous, err := parseLogOptions(query, now)
	if err != nil || !previous || !options.follow || !options.timestamps || *options.tail != 0 || *options.limit != 7 || !options.since.Equal(at(70)) {
		t.Errorf("%+v, %v, %v", options, previous, err)
	}
	for _, bad := range []string{"follow=perhaps", "tailLines=-1", "limitBytes=x", "sinceTime=yesterday", "stream=Stderr"} {
		query, _ := url.ParseQuery(bad)
		if _, _, err := parseLogOptions(query, now); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
