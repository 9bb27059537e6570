package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A cluster whose type no plugin serves is suspect for it, in everything that tells of health: its row, its history, the
// metrics. A server that has such a cluster starts as any other.
func TestHealthIsToldEverywhere(t *testing.T) {
	r := start(t, t.TempDir())
	const path = "/api/v1/clusters/Default%20Cluster"
	conditions := map[string]string{}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) { // polling with a deadline
		_, c := r.do("GET", path, nil)
		observed, _ := c["observed"].(map[string]any)
		if observed["health"] == "suspect" {
			for _, c := range observed["conditions"].([]any) {
				c := c.(map[string]any)
				reason, _ := c["reason"].(string)
				conditions[c["type"].(string)] = c["status"].(string) + " " + reason
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %v", c)
		}
	}
	if conditions["Reachable"] != "false provider" || conditions["ProviderServed"] != "false not-served" {
		t.Errorf("conditions %v", conditions)
	}
	status, history := r.do("GET", path+"/history", nil)
	items, _ := history["items"].([]any)
	if status != 200 || len(items) == 0 || items[0].(map[string]any)["to"] != "suspect" || items[0].(map[string]any)["reason"] != "provider" {
		t.Errorf("%d %v", status, history)
	}
	if status, _ := r.do("GET", "/api/v1/clusters/nobody/history", nil); status != 404 {
		t.Errorf("the history of a cluster that is not there: %d", status)
	}
	resp, err := http.Get(r.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if want := `health="suspect",name="Default Cluster"} 1`; !strings.Contains(string(text), want) {
		t.Errorf("the metrics do not have %s", want)
	}
}
