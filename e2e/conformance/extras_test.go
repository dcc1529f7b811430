//go:build conformance

package conformance

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// What a hub may ask for that first agents do not know and pass over.

func init() {
	rules = append(rules,
		rule{name: "2/rollback/of-files", better: "rollback", test: func(m *machine) {
			m.writeMode("f", "old", 0o640)
			m.write("gone", "here")
			plan := both(obj{"rollback": true}, m.files(m.file("f", "new"), m.file("d/made", "x"), obj{"path": m.path("gone"), "action": "delete"}),
				instructions(ran("a", "cat $M/f >$M/seen; exit 1")))
			m.deliver(plan, map[string]string{"plan-state": "pending", "max-failures": "1"})
			m.start()
			m.until("failure", inState("failed"))
			m.holds("seen", "new")
			m.holds("f", "old")
			m.attrs("f", 0o640, 0, 0)
			m.holds("gone", "here")
			if m.exists("d/made") {
				m.Errorf("what the plan made is still there")
			}
		}},
		rule{name: "2/rollback/not-asked-for", test: func(m *machine) {
			m.write("f", "old")
			m.fail(both(m.files(m.file("f", "new")), instructions(sh("a", "exit 1"))), map[string]string{"max-failures": "1"})
			m.never(2*time.Second, "the file was put back", func(state) bool { return m.read("f") != "new" })
		}},
		rule{name: "3.1/progress/while-an-instruction-runs", better: "progress", test: func(m *machine) {
			sum := m.pending(instructions(sh("a", ":"), waiting("b")))
			m.start()
			m.until("the instruction", func(state) bool { return m.lines("b") == 1 })
			s := m.until("plan-progress", func(s state) bool { return strings.Contains(s.text("plan-progress"), `"name":"b"`) })
			var progress struct {
				Checksum     string
				Index, Total int
			}
			if err := json.Unmarshal([]byte(s.text("plan-progress")), &progress); err != nil || progress.Checksum != sum || progress.Index != 1 ||
				progress.Total != 2 {
				m.Errorf("plan-progress is %s", s.text("plan-progress"))
			}
			m.write("go", "")
			m.until("the end of plan-progress", func(s state) bool { return s.applied(sum) && s.text("plan-progress") == "" })
		}},
		signed("not-signed", false, func(*signer, string) string { return "" }),
		signed("signed", true, func(s *signer, sum string) string { return s.sign(s.m.namespace, sum, 1) }),
		signed("signed-by-another", false, func(s *signer, sum string) string { return newSigner(s.m).sign(s.m.namespace, sum, 1) }),
		signed("signed-for-another-machine", false, func(s *signer, sum string) string { return s.sign("elsewhere", sum, 1) }),
		signed("signed-another-plan", false, func(s *signer, _ string) string { return s.sign(s.m.namespace, checksum("{}"), 1) }),
		rule{name: "3.1/signature/older-than-one-that-was-accepted", better: "S1", test: func(m *machine) {
			s := newSigner(m)
			s.pin()
			plan := instructions(ran("a"))
			m.run(plan, map[string]string{"plan-signature": s.sign(m.namespace, checksum(encode(plan)), 7)})
			plan = instructions(ran("b"))
			m.deliver(plan, map[string]string{"plan-signature": s.sign(m.namespace, checksum(encode(plan)), 6)})
			m.never(4*time.Second, "the plan ran", func(state) bool { return m.exists("b") })
		}},
	)
}

// signer is the key of a hub.
type signer struct {
	m       *machine
	public  ed25519.PublicKey
	private ed25519.PrivateKey
}

func newSigner(m *machine) *signer {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		m.Fatalf("%s", err)
	}
	return &signer{m, public, private}
}

// pin gives the machine the key with its connection info, and lets it enforce signatures.
func (s *signer) pin() {
	var info obj
	_ = json.Unmarshal([]byte(s.m.read("rancher2_connection_info.json")), &info)
	info["planSigningKey"] = base64.StdEncoding.EncodeToString(s.public)
	s.m.write("rancher2_connection_info.json", encode(info))
	s.m.config["planSignatures"] = "enforce"
}

// sign is the value of plan-signature.
func (s *signer) sign(namespace, sum string, sequence int) string {
	id := sha256.Sum256(s.public)
	text := fmt.Sprintf("drover plan v1\n%s\n%s/%s\n%d\n", sum, namespace, secretName, sequence)
	raw, _ := json.Marshal(obj{"keyID": hex.EncodeToString(id[:8]), "sequence": sequence, "signature": ed25519.Sign(s.private, []byte(text))})
	return string(raw)
}

// signed is a rule about a plan where signatures are enforced.
func signed(name string, runs bool, signature func(s *signer, sum string) string) rule {
	return rule{name: "3.1/signature/" + name, better: "S1", test: func(m *machine) {
		s := newSigner(m)
		s.pin()
		plan := both(m.files(m.file("f", "x")), instructions(ran("a")))
		sum := checksum(encode(plan))
		m.deliver(plan, map[string]string{"plan-signature": signature(s, sum), "plan-state": "pending"})
		m.start()
		if runs {
			m.until("success", func(s state) bool { return s.applied(sum) })
			return
		}
		m.never(4*time.Second, "the plan was carried out, or something was written", func(s state) bool {
			_, err := os.Stat(m.path("f"))
			return err == nil || m.exists("a") || s.text("plan-state") != "pending" && s.object != nil
		})
	}}
}
