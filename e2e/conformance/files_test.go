//go:build conformance

package conformance

import (
	"os"
	"strings"
	"syscall"
	"time"
)

// attrs fails unless a path has the twelve bits of a mode and an owner.
func (m *machine) attrs(name string, mode uint32, uid, gid uint32) {
	info, err := os.Lstat(m.path(name))
	if err != nil {
		m.Errorf("%s", err)
		return
	}
	stat := info.Sys().(*syscall.Stat_t)
	if stat.Mode&0o7777 != mode || stat.Uid != uid || stat.Gid != gid {
		m.Errorf("%s has mode %04o and owner %d:%d, and should have %04o and %d:%d", name, stat.Mode&0o7777, stat.Uid, stat.Gid, mode, uid, gid)
	}
}

func (m *machine) holds(name, want string) {
	if got := m.read(name); got != want {
		m.Errorf("%s holds %q and should hold %q", name, got, want)
	}
}

// permissions is a rule about what a value of "permissions" comes to.
func permissions(name string, value string, directory bool, want uint32, better string) rule {
	return rule{name: "2/file/permissions-" + name, better: better, test: func(m *machine) {
		f := obj{"path": m.path("f"), "content": base64Of("x"), "directory": directory}
		if value != "" {
			f["permissions"] = value
		}
		m.run(m.files(f))
		m.attrs("f", want, 0, 0)
		if info, err := os.Stat(m.path("f")); err != nil || info.IsDir() != directory {
			m.Errorf("is a folder: %t, %v", !directory, err)
		}
	}}
}

// refused is a rule about a file that cannot be placed: what follows it is not done, and the hub gets to know.
func refused(name string, file func(m *machine) obj) []rule {
	plan := func(m *machine) obj {
		return both(m.files(file(m), m.file("later", "x")), instructions(sh("i", "echo >>$M/ran")))
	}
	return []rule{
		{name: "2/file/" + name, test: func(m *machine) {
			sum := m.deliver(plan(m))
			m.start()
			m.never(4*time.Second, "the plan counts as applied, or went on", func(s state) bool {
				return s.applied(sum) || m.exists("later") || m.exists("ran")
			})
		}},
		{name: "2/file/" + name + "-is-reported", better: "B4", test: func(m *machine) {
			s := m.fail(plan(m))
			if len(s.outputs("failed-output")) == 0 {
				m.Errorf("failed-output is empty")
			}
		}},
	}
}

func init() {
	rules = append(rules,
		permissions("default-0600", "", false, 0o600, ""),
		permissions("default-0755-of-folders", "", true, 0o755, ""),
		permissions("with-zero", "0644", false, 0o644, ""),
		permissions("without-zero", "640", false, 0o640, ""),
		permissions("of-folder", "0711", true, 0o711, ""),
		permissions("beyond-the-umask", "0666", false, 0o666, ""),
		permissions("setuid", "4755", false, 0o4755, "B11"),
		permissions("sticky", "1777", true, 0o1777, "B11"),
		rule{name: "2/file/content", test: func(m *machine) {
			m.run(m.files(m.file("f", "a\x00b\n\xff")))
			m.holds("f", "a\x00b\n\xff")
		}},
		rule{name: "2/file/content-empty", test: func(m *machine) {
			m.run(m.files(obj{"path": m.path("f")}))
			m.holds("f", "")
			m.attrs("f", 0o600, 0, 0)
		}},
		rule{name: "2/file/content-replaced", test: func(m *machine) {
			m.writeMode("f", "a much longer text", 0o644)
			m.run(m.files(m.file("f", "new")))
			m.holds("f", "new")
			m.attrs("f", 0o600, 0, 0)
		}},
		rule{name: "2/file/owner-root", test: func(m *machine) {
			m.write("f", "x")
			_ = os.Chown(m.path("f"), 7, 7)
			m.run(m.files(m.file("f", "x")))
			m.attrs("f", 0o600, 0, 0)
		}},
		rule{name: "2/file/owner-set", test: func(m *machine) {
			m.run(m.files(m.file("f", "x", obj{"uid": 7, "gid": 8, "permissions": "0640"}),
				m.file("d", "", obj{"directory": true, "uid": 9, "gid": 10})))
			m.attrs("f", 0o640, 7, 8)
			m.attrs("d", 0o755, 9, 10)
		}},
		rule{name: "2/file/owner-stays-with-minus-one", test: func(m *machine) {
			m.write("f", "x")
			_ = os.Chown(m.path("f"), 7, 8)
			m.run(m.files(m.file("f", "y", obj{"uid": -1, "gid": -1})))
			m.attrs("f", 0o600, 7, 8)
		}},
		rule{name: "2/file/mode-of-equal-content", test: func(m *machine) {
			m.writeMode("f", "x", 0o666)
			m.run(m.files(m.file("f", "x", obj{"permissions": "0640"})))
			m.attrs("f", 0o640, 0, 0)
		}},
		rule{name: "2/file/equal-file-is-left-alone", test: func(m *machine) {
			m.write("f", "x")
			then := time.Now().Add(-time.Hour).Truncate(time.Second)
			if err := os.Chtimes(m.path("f"), then, then); err != nil {
				m.Fatalf("%s", err)
			}
			m.run(m.files(m.file("f", "x")))
			if info, err := os.Stat(m.path("f")); err != nil || !info.ModTime().Equal(then) {
				m.Errorf("the file was written although it was so already")
			}
		}},
		rule{name: "2/file/parents", test: func(m *machine) {
			m.run(m.files(m.file("a/b/f", "x", obj{"uid": 7, "permissions": "0640"})))
			m.attrs("a", 0o755, 0, 0)
			m.attrs("a/b", 0o755, 0, 0)
			m.attrs("a/b/f", 0o640, 7, 0)
		}},
		rule{name: "2/file/folder-that-is-there", test: func(m *machine) {
			m.write("d/f", "x")
			m.run(m.files(obj{"path": m.path("d"), "directory": true, "permissions": "0700"}))
			m.attrs("d", 0o700, 0, 0)
			m.holds("d/f", "x")
		}},
		rule{name: "2/file/in-their-order", test: func(m *machine) {
			m.run(m.files(m.file("f", "1"), m.file("f", "2"), obj{"path": m.path("d"), "directory": true, "permissions": "0700"},
				m.file("d/f", "3")))
			m.holds("f", "2")
			m.holds("d/f", "3")
			m.attrs("d", 0o700, 0, 0)
		}},
		rule{name: "2/file/before-instructions", test: func(m *machine) {
			m.run(both(m.files(m.file("f", "x")), instructions(sh("i", "cp $M/f $M/copy"))))
			m.holds("copy", "x")
		}},
		rule{name: "2/file/delete", test: func(m *machine) {
			m.write("f", "x")
			m.run(m.files(obj{"path": m.path("f"), "action": "delete"}))
			if m.exists("f") {
				m.Errorf("the file is still there")
			}
		}},
		rule{name: "2/file/delete-what-is-not-there", test: func(m *machine) {
			m.run(m.files(obj{"path": m.path("f"), "action": "delete"}, obj{"path": m.path("d"), "directory": true, "action": "delete"}))
		}},
		rule{name: "2/file/delete-empty-folder", test: func(m *machine) {
			_ = os.Mkdir(m.path("d"), 0o755)
			m.run(m.files(obj{"path": m.path("d"), "action": "delete"}))
			if m.exists("d") {
				m.Errorf("the folder is still there")
			}
		}},
		rule{name: "2/file/delete-folder-with-all-in-it", test: func(m *machine) {
			m.write("d/a/f", "x")
			m.run(m.files(obj{"path": m.path("d"), "directory": true, "action": "delete"}))
			if m.exists("d") {
				m.Errorf("the folder is still there")
			}
		}},
		rule{name: "2/file/action-upsert", test: action("upsert")},
		rule{name: "2/file/action-unknown", test: action("whatever")},
		rule{name: "2/file/dynamic-and-minor", test: func(m *machine) {
			m.run(m.files(m.file("f", "x", obj{"dynamic": true, "minor": true})))
			m.holds("f", "x")
		}},
		rule{name: "2/file/dropped-from-the-plan", test: func(m *machine) {
			m.run(m.files(m.file("f", "x"), m.file("g", "x")))
			m.run(m.files(m.file("g", "y")))
			m.holds("f", "x")
			m.holds("g", "y")
		}},
		rule{name: "2/file/changed-by-others-stays", test: func(m *machine) {
			m.run(m.files(m.file("f", "x")))
			m.write("f", "y")
			m.never(4*time.Second, "a file of an applied plan was written again", func(state) bool { return m.read("f") != "y" })
		}},
		rule{name: "2/file/whole-or-not-at-all", better: "B21", test: func(m *machine) {
			m.write("f", "old")
			if err := os.Link(m.path("f"), m.path("same")); err != nil {
				m.Fatalf("%s", err)
			}
			m.run(m.files(m.file("f", "new")))
			m.holds("f", "new")
			m.holds("same", "old")
		}},
		rule{name: "2/file/leaves-nothing-beside-it", test: func(m *machine) {
			m.run(m.files(m.file("d/f", "x"), m.file("d/f", "y")))
			if entries, err := os.ReadDir(m.path("d")); err != nil || len(entries) != 1 {
				m.Errorf("the folder holds %v, %v", entries, err)
			}
		}},
		rule{name: "2/file/link-in-its-place-is-not-followed", better: "S5", test: func(m *machine) {
			m.write("victim", "old")
			if err := os.Symlink(m.path("victim"), m.path("f")); err != nil {
				m.Fatalf("%s", err)
			}
			m.run(m.files(m.file("f", "new", obj{"permissions": "0666"})))
			m.holds("victim", "old")
			m.attrs("victim", 0o600, 0, 0)
			m.holds("f", "new")
		}},
		rule{name: "2/file/delete-takes-the-link", test: func(m *machine) {
			m.write("victim/f", "old")
			if err := os.Symlink(m.path("victim"), m.path("d")); err != nil {
				m.Fatalf("%s", err)
			}
			m.run(m.files(obj{"path": m.path("d"), "directory": true, "action": "delete"}))
			m.holds("victim/f", "old")
			if m.exists("d") {
				m.Errorf("the link is still there")
			}
		}},
		rule{name: "2/file/content-not-in-the-log", better: "S4", test: func(m *machine) {
			m.run(both(m.files(m.file("f", "hunter2")), instructions(sh("i", "echo $SECRET", obj{"env": []string{"SECRET=hunter2"}}))))
			for _, secret := range []string{"hunter2", base64Of("hunter2")} {
				if strings.Contains(m.read("agent.log"), secret) {
					m.Errorf("the log of level debug holds %q", secret)
				}
			}
		}},
	)
	rules = append(rules, refused("no-path", func(*machine) obj { return obj{"content": base64Of("x")} })...)
	rules = append(rules, refused("content-not-base64", func(m *machine) obj { return obj{"path": m.path("f"), "content": "%%%"} })...)
	rules = append(rules, refused("content-without-padding", func(m *machine) obj { return obj{"path": m.path("f"), "content": "eA"} })...)
	rules = append(rules, refused("permissions-with-0o", func(m *machine) obj { return m.file("f", "x", obj{"permissions": "0o644"}) })...)
	rules = append(rules, refused("delete-full-folder-as-file", func(m *machine) obj {
		m.write("d/f", "x")
		return obj{"path": m.path("d"), "action": "delete"}
	})...)
	rules = append(rules, refused("parent-is-a-file", func(m *machine) obj {
		m.write("d", "x")
		return m.file("d/f", "x")
	})...)
}

func action(name string) func(*machine) {
	return func(m *machine) {
		m.run(m.files(m.file("f", "x", obj{"action": name})))
		m.holds("f", "x")
	}
}
