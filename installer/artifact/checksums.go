package artifact

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// Checksums are the SHA-256 checksums of a release's files, in lower-case hexadecimal, by the names of the files.
type Checksums map[string]string

// ParseChecksums parses the output of sha256sum: a checksum, a space, a space or an asterisk, and a name, of which only the last element
// counts. Two different checksums for one name are an error.
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
			return nil, fmt.Errorf("line %d is not a SHA-256 checksum and a file name", number)
		}
		if old, known := sums[name]; known && old != sum {
			return nil, fmt.Errorf("line %d: another checksum for %s than before", number, name)
		}
		sums[name] = sum
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading lines: %w", err)
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("no checksums found")
	}
	return sums, nil
}
