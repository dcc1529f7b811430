package artefact

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// Checksums are the sha256 sums of a release's files, in lower-case hexadecimal, by the files' names.
type Checksums map[string]string

// ParseChecksums reads the output of sha256sum: a sum, a space, a space or an asterisk, and a name. Folders before a name
// are left out. Two different sums for one name are an error, since either could be the wrong one.
func ParseChecksums(raw []byte) (Checksums, error) {
	sums := Checksums{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		sum, name, ok := strings.Cut(line, " ")
		name = path.Base(strings.TrimPrefix(strings.TrimLeft(name, " "), "*"))
		sum = strings.ToLower(sum)
		if decoded, err := hex.DecodeString(sum); !ok || err != nil || len(decoded) != 32 || name == "." {
			return nil, fmt.Errorf("line %d is not a sha256 sum and a file name", number)
		}
		if old, known := sums[name]; known && old != sum {
			return nil, fmt.Errorf("line %d: a second, different sum for %s", number, name)
		}
		sums[name] = sum
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading lines: %w", err)
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("there is no checksum in it")
	}
	return sums, nil
}
