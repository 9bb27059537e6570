package containernode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Images that every node has, without a registry.
const (
	// BusyboxImage has Debian's static busybox and a link for each of its commands.
	BusyboxImage = "devcluster.local/busybox:1"
	pauseImage   = "devcluster.local/pause:1"
)

const busybox = "busybox"

// writeImages writes an archive of both images, as `docker save` does.
func writeImages(path string) error {
	binary, err := exec.LookPath(busybox)
	if err != nil {
		return fmt.Errorf("image %s: %w", BusyboxImage, err)
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("image %s: %w", BusyboxImage, err)
	}
	names, err := exec.Command(binary, "--list").Output()
	if err != nil {
		return fmt.Errorf("image %s: %s --list: %w", BusyboxImage, binary, err)
	}
	layer, err := layerOf(text, bytes.Fields(names))
	if err != nil {
		return fmt.Errorf("image %s: %w", BusyboxImage, err)
	}
	sum := sha256.Sum256(layer)
	files := map[string][]byte{"layer.tar": layer}
	var manifest []map[string]any
	for name, entrypoint := range map[string][]string{BusyboxImage: nil, pauseImage: {"/bin/sleep", "2147483647"}} {
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Entrypoint": entrypoint, "Env": []string{"PATH=/bin"}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
		})
		if err != nil {
			return err
		}
		digest := sha256.Sum256(config)
		file := hex.EncodeToString(digest[:]) + ".json"
		files[file] = config
		manifest = append(manifest, map[string]any{"Config": file, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}})
	}
	if files["manifest.json"], err = json.Marshal(manifest); err != nil {
		return err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

// layerOf is a file system of one binary and links to it.
func layerOf(binary []byte, names [][]byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{"bin/", "etc/", "proc/", "sys/", "dev/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return nil, err
	}
	if err := w.WriteHeader(&tar.Header{Name: "bin/" + busybox, Mode: 0o755, Size: int64(len(binary))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(binary); err != nil {
		return nil, err
	}
	for _, name := range names {
		if string(name) == busybox {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + string(name), Linkname: busybox, Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
