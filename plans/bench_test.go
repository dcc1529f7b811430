package plans

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// fullPlan is a plan of the size a server of a real cluster gets: some twenty files, half of them manifests.
func fullPlan() Plan {
	p := Plan{Probes: map[string]Probe{}}
	for i := range 20 {
		content := strings.Repeat(fmt.Sprintf("line of file %d\n", i), 200)
		p.Files = append(p.Files, File{Path: fmt.Sprintf("/etc/rancher/k3s/%d.yaml", i),
			Content: base64.StdEncoding.EncodeToString([]byte(content))})
	}
	for i := range 5 {
		p.Instructions = append(p.Instructions, Instruction{CommonInstruction: CommonInstruction{
			Name: fmt.Sprintf("step-%d", i), Command: "sh", Args: []string{"-c",
				"run.sh"}, Env: []string{"RESTART_STAMP=" + strings.Repeat("a", 64)}}})
		p.Probes[fmt.Sprintf("probe-%d", i)] = Probe{HTTPGet: HTTPGetAction{URL: "https://127.0.0.1:6443/readyz"}}
	}
	return p
}

func BenchmarkEncode(b *testing.B) {
	p := fullPlan()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	raw, err := fullPlan().Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkChecksum(b *testing.B) {
	raw, err := fullPlan().Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		_ = Checksum(raw)
	}
}

func BenchmarkStatus(b *testing.B) {
	status := Status{AppliedChecksum: strings.Repeat("a", 64), AppliedOutput: map[string][]byte{"etcd-name": []byte(strings.Repeat("x",
		4096))},
		ProbeStatuses: map[string]ProbeStatus{"etcd": {Healthy: true, SuccessCount: 3}}}
	data := SecretData{}
	b.ReportAllocs()
	for b.Loop() {
		if err := status.WriteTo(data); err != nil {
			b.Fatal(err)
		}
		if _, err := DecodeStatus(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDiff(b *testing.B) {
	before, after := fullPlan(), fullPlan()
	after.Files[7].Content = ""
	b.ReportAllocs()
	for b.Loop() {
		if Diff(before, after).Empty() {
			b.Fatal("a changed file was not seen")
		}
	}
}
