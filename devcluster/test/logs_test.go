package test

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func logs(t *testing.T, c *cluster) {
	c.create(t, "lines", shell("for i in 1 2 3; do echo out $i; echo err $i >&2; done; sleep 2; printf last"))
	c.awaitPhase(t, "lines", corev1.PodSucceeded)
	one, zero, bytes := int64(2), int64(0), int64(9)
	for name, test := range map[string]struct {
		options corev1.PodLogOptions
		want    string
	}{
		"all":        {corev1.PodLogOptions{}, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nlast"},
		"tail":       {corev1.PodLogOptions{TailLines: &one}, "err 3\nlast"},
		"tail of 0":  {corev1.PodLogOptions{TailLines: &zero}, ""},
		"bytes":      {corev1.PodLogOptions{LimitBytes: &bytes}, "out 1\nerr"},
		"since then": {corev1.PodLogOptions{SinceSeconds: &one}, "last"},
	} {
		if name == "since then" {
			time.Sleep(300 * time.Millisecond)
		}
		if got := c.logs(t, "lines", test.options); got != test.want {
			t.Errorf("%s: %q; want %q", name, got, test.want)
		}
	}
	stamped := regexp.MustCompile(`(?m)\A(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (out|err) \d\n){6}\S+Z last\z`)
	if got := c.logs(t, "lines", corev1.PodLogOptions{Timestamps: true}); !stamped.MatchString(got) {
		t.Errorf("with times: %q", got)
	}
}

func anyBytes(t *testing.T, c *cluster) {
	c.create(t, "bytes", shell(`printf 'a\000\377\r\n'; head -c 5000000 /dev/zero | tr '\0' x; echo; printf 'end\r'`))
	c.awaitPhase(t, "bytes", corev1.PodSucceeded)
	want := "a\x00\xff\r\n" + strings.Repeat("x", 5_000_000) + "\nend\r"
	if got := c.logs(t, "bytes", corev1.PodLogOptions{}); got != want {
		t.Errorf("%d bytes came, %d were written", len(got), len(want))
	}
	if got := c.logs(t, "bytes", corev1.PodLogOptions{Timestamps: true}); len(got) != len(want)+3*31 {
		t.Errorf("with times: %d bytes more; want those of 3 lines", len(got)-len(want))
	}
}

func follow(t *testing.T, c *cluster) {
	c.create(t, "follow", shell("for i in 1 2 3 4 5; do echo $i; sleep 0.3; done"))
	c.await(t, "follow", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	stream, err := c.client.CoreV1().Pods("default").GetLogs("follow", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var got bytes.Buffer
	reads := 0
	buffer := make([]byte, 100)
	for {
		n, err := stream.Read(buffer)
		got.Write(buffer[:n])
		if n > 0 {
			reads++
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != "1\n2\n3\n4\n5\n" || reads < 2 {
		t.Errorf("%q in %d pieces", got.String(), reads)
	}
	end := c.awaitPhase(t, "follow", corev1.PodSucceeded).Status.ContainerStatuses[0].State.Terminated.FinishedAt
	if late := time.Since(end.Time); late > 5*time.Second {
		t.Errorf("the follow ended %s after the container", late)
	}
}
