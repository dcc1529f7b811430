package machines

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"

	"sigs.k8s.io/yaml"
)

var (
	tokenLine = regexp.MustCompile(`CATTLE_TOKEN='([^']+)'`)
	gzipMagic = []byte{0x1f, 0x8b}
)

// BootstrapToken returns the token in bootstrap data, a cloud-config with the install script.
func BootstrapToken(data []byte) (string, error) {
	data, err := plain(data)
	if err != nil {
		return "", err
	}
	var document struct {
		WriteFiles []struct{ Content string } `json:"write_files"`
	}
	if err := yaml.Unmarshal(data, &document); err != nil {
		return "", fmt.Errorf("decoding the cloud-config: %w", err)
	}
	for _, file := range document.WriteFiles {
		script, err := base64.StdEncoding.DecodeString(file.Content)
		if err != nil {
			continue
		}
		if script, err = plain(script); err != nil {
			return "", err
		}
		if token := tokenLine.FindSubmatch(script); token != nil {
			return string(token[1]), nil
		}
	}
	return "", errors.New("the cloud-config has no install script with a token")
}

// plain returns what may be compressed.
func plain(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, gzipMagic) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompressing bootstrap data: %w", err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("decompressing bootstrap data: %w", err)
	}
	return out, nil
}
