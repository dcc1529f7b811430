package artifact

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	sumA = strings.Repeat("a", 64)
	sumB = strings.Repeat("b", 64)
)

func TestParseChecksums(t *testing.T) {
	for _, test := range []struct {
		name, raw string
		want      Checksums
		err       string
	}{
		{name: "as sha256sum prints them", raw: sumA + "  k3s\n" + sumB + " *k3s-images.txt\n",
			want: Checksums{"k3s": sumA, "k3s-images.txt": sumB}},
		{name: "with folders, blank lines and capitals", raw: "\n" + strings.ToUpper(sumA) + "  ./dist/k3s\n\n", want: Checksums{"k3s": sumA}},
		{name: "the same twice", raw: sumA + "  k3s\n" + sumA + "  k3s\n", want: Checksums{"k3s": sumA}},
		{name: "two sums for a name", raw: sumA + "  k3s\n" + sumB + "  k3s\n", err: "line 2: another checksum for k3s than before"},
		{name: "a page of a server", raw: "<html>\n", err: "line 1 is not a SHA-256 checksum and a file name"},
		{name: "a short sum", raw: "abcd  k3s\n", err: "line 1 is not a SHA-256 checksum and a file name"},
		{name: "a sum alone", raw: sumA + "\n", err: "line 1 is not a SHA-256 checksum and a file name"},
		{name: "nothing", raw: "\n", err: "no checksums found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseChecksums([]byte(test.raw))
			if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Fatalf("error is %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("checksums (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseChecksums(f *testing.F) {
	f.Add([]byte(sumA + "  k3s\n" + sumB + " *b\n"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		sums, err := ParseChecksums(raw)
		if err == nil && len(sums) == 0 {
			t.Error("neither sums nor an error")
		}
		for name, sum := range sums {
			if len(sum) != 64 || sum != strings.ToLower(sum) || strings.Contains(name, "/") && name != "/" {
				t.Errorf("%q has the sum %q", name, sum)
			}
		}
	})
}
