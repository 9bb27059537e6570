package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cpuTimes is the processor time used so far by everything below this process, by what it is. It says where a rate goes.
func cpuTimes() map[string]time.Duration {
	type process struct {
		parent int
		name   string
		used   time.Duration
	}
	all := map[int]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		raw, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		text := string(raw)
		f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		pid, _ := strconv.Atoi(filepath.Base(d))
		parent, _ := strconv.Atoi(f[1])
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		line, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		words := strings.Split(string(line), "\x00")
		name := filepath.Base(words[0])
		if name == "devcluster" && len(words) > 1 {
			name = words[1]
		}
		all[pid] = process{parent, name, time.Duration(user+system) * 10 * time.Millisecond}
	}
	out := map[string]time.Duration{}
	self := os.Getpid()
	for pid, p := range all {
		for at := pid; at > 1; at = all[at].parent {
			if at == self {
				out[p.name] += p.used
				break
			}
		}
	}
	return out
}

// since says what was used after an earlier look, the most first.
func since(before map[string]time.Duration) string {
	now := cpuTimes()
	var names []string
	for name := range now {
		if now[name]-before[name] >= 100*time.Millisecond {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return int(now[b] - before[b] - now[a] + before[a]) })
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %.1fs", name, (now[name]-before[name]).Seconds()))
	}
	return strings.Join(parts, ", ")
}
