package build

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocuments compares the software bill of materials of each package with the package, as the tool of its format lists it.
func TestDocuments(t *testing.T) {
	for _, path := range made(t) {
		raw, err := os.ReadFile(path + DocumentSuffix)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Packages []struct {
				FileName  string `json:"packageFileName"`
				Purpose   string `json:"primaryPackagePurpose"`
				Checksums []struct {
					Value string `json:"checksumValue"`
				} `json:"checksums"`
			} `json:"packages"`
		}
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		itself, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		listed, purposes := map[string]bool{}, map[string]int{}
		for _, p := range got.Packages {
			purposes[p.Purpose]++
			if p.FileName != "" {
				listed[p.FileName] = true
			}
			if want := fmt.Sprintf("%x", sha256.Sum256(itself)); p.Purpose == "INSTALL" && p.Checksums[0].Value != want {
				t.Errorf("%s has the checksum %s, listed is %s", path, want, p.Checksums[0].Value)
			}
		}
		programs := 1
		if strings.Contains(path, hubName) {
			programs = 3
		}
		if purposes["INSTALL"] != 1 || purposes["APPLICATION"] != programs || purposes["LIBRARY"] == 0 {
			t.Errorf("%s lists %v", path, purposes)
		}
		for _, line := range contents(t, path) {
			if mode, file, _ := strings.Cut(line, " "); strings.HasPrefix(mode, "-") && !listed[file] {
				t.Errorf("%s is not listed in the document of %s", file, path)
			}
		}
	}
}
