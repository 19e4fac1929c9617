// Limits of an archive, and the rules that every entry of it must keep.

package artifact

import (
	"archive/tar"
	"path"
	"strings"
)

// Limits bound an archive. A zero field means its default.
type Limits struct {
	Entries int   // files, directories and links, implied directories among them; 0 = 100,000
	Bytes   int64 // of all files together, unpacked; 0 = 4 GiB
	File    int64 // of one file, unpacked; 0 = 2 GiB
	Depth   int   // components of a path; 0 = 64
	PathLen int   // bytes of a path; 0 = 1024
}

func (l Limits) withDefaults() Limits {
	if l.Entries <= 0 {
		l.Entries = 100_000
	}
	if l.Bytes <= 0 {
		l.Bytes = 4 << 30
	}
	if l.File <= 0 {
		l.File = 2 << 30
	}
	if l.Depth <= 0 {
		l.Depth = 64
	}
	if l.PathLen <= 0 {
		l.PathLen = 1024
	}
	return l
}

// raw is the most bytes an archive within the limits can have: each entry may
// cost headers, long names and padding, but not more than this.
func (l Limits) raw() int64 {
	perEntry := int64(8<<10 + 2*l.PathLen)
	return l.Bytes + int64(l.Entries)*perEntry + 1<<20
}

// maxName is what file systems allow for one component of a path, in bytes.
const maxName = 255

// kind is what a path of an archive is.
type kind uint8

const (
	directory kind = 1
	file      kind = 2
	symlink   kind = 3
)

func (k kind) String() string { return [...]string{"", "directory", "file", "symbolic link"}[k] }

// Contents counts what an archive holds.
type Contents struct {
	Entries int   // files, directories and links
	Bytes   int64 // of all files together, unpacked
}

// rules judge the entries of one archive in order. They are pure: what passes
// them stays inside the directory it is unpacked into, whoever looks at it.
//
// A symbolic link climbs only with leading "..", no further than its directory
// is deep, and nothing lies below a link. So every link starts in a real
// directory, climbs over real directories, stays inside, and descends from there
// through names for which the same holds.
type rules struct {
	limits   Limits
	seen     map[string]kind
	contents Contents
}

func newRules(l Limits) *rules {
	return &rules{limits: l.withDefaults(), seen: map[string]kind{}}
}

// entry is a tar header that passed.
type entry struct {
	path   string // relative, clean, never "."
	kind   kind
	target string // of a link; of a hard link the path of an earlier file
	hard   bool
	exec   bool
	size   int64
	again  bool // the path was there before, as the same kind
}

// admit judges a header; skip tells that it is no entry of its own.
func (r *rules) admit(h *tar.Header) (e entry, skip bool, err error) {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return entry{}, true, r.count(h.Name, 0)
	}
	if e.path, err = r.cleanPath(h.Name); err != nil {
		return entry{}, false, err
	}
	if h.Mode&0o7000 != 0 {
		return entry{}, false, ErrPrivileged.Because("entry %q carries setuid, setgid or sticky bits", shown(h.Name))
	}
	if err := r.classify(h, &e); err != nil {
		return entry{}, false, err
	}
	if e.path == "." {
		if e.kind != directory {
			return entry{}, false, ErrTypeSwitch.Because("entry %q is the archive's root and no directory", shown(h.Name))
		}
		return entry{}, true, r.count(h.Name, 0)
	}
	if err := r.place(&e); err != nil {
		return entry{}, false, err
	}
	return e, false, r.count(h.Name, e.size)
}

func (r *rules) cleanPath(name string) (string, error) {
	if len(name) > r.limits.PathLen {
		return "", ErrLimit.Because("the path of entry %q has %d bytes, more than %d", shown(name), len(name), r.limits.PathLen)
	}
	if name == "" || strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return "", ErrEscape.Because("entry %q has no relative path", shown(name))
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return "", ErrEscape.Because("entry %q climbs with \"..\"", shown(name))
		case len(part) > maxName:
			return "", ErrLimit.Because("entry %q has a name of %d bytes, more than %d", shown(name), len(part), maxName)
		default:
			depth++
		}
	}
	if depth > r.limits.Depth {
		return "", ErrLimit.Because("entry %q is %d directories deep, more than %d", shown(name), depth, r.limits.Depth)
	}
	return path.Clean(name), nil
}

func (r *rules) classify(h *tar.Header, e *entry) error {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return ErrSpecial.Because("entry %q is a sparse file", shown(h.Name))
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		e.kind = directory
	case tar.TypeReg:
		e.kind, e.size, e.exec = file, h.Size, h.Mode&0o111 != 0
		if h.Size > r.limits.File {
			return ErrLimit.Because("entry %q has %d bytes, more than %d", shown(h.Name), h.Size, r.limits.File)
		}
	case tar.TypeSymlink:
		e.kind, e.target = symlink, h.Linkname
		if !inside(e.path, h.Linkname) || len(h.Linkname) > r.limits.PathLen {
			return ErrLink.Because("link %q to %q may lead out of the tree", shown(h.Name), shown(h.Linkname))
		}
	case tar.TypeLink:
		target, err := r.cleanPath(h.Linkname)
		if err != nil || r.seen[target] != file {
			return ErrLink.Because("hard link %q to %q: that is no earlier file of the archive", shown(h.Name), shown(h.Linkname))
		}
		e.kind, e.target, e.hard = file, target, true
	default:
		return ErrSpecial.Because("entry %q is of kind %q: neither file, directory nor link", shown(h.Name), h.Typeflag)
	}
	return nil
}

// inside reports whether a symbolic link at a path stays in the tree; see rules.
func inside(at, target string) bool {
	if target == "" || strings.HasPrefix(target, "/") || strings.ContainsRune(target, 0) {
		return false
	}
	room := strings.Count(at, "/") // how many directories it lies in
	descending := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			room--
			if descending || room < 0 {
				return false
			}
		default:
			descending = true
		}
	}
	return true
}

// place enters a path and the directories it implies.
func (r *rules) place(e *entry) error {
	for i := range len(e.path) {
		if e.path[i] != '/' {
			continue
		}
		switch parent := e.path[:i]; r.seen[parent] {
		case directory:
		case symlink:
			return ErrEscape.Because("entry %q passes through the link %q", shown(e.path), shown(parent))
		case file:
			return ErrTypeSwitch.Because("entry %q lies below the file %q", shown(e.path), shown(parent))
		default:
			r.seen[parent] = directory
			if err := r.count(e.path, 0); err != nil {
				return err
			}
		}
	}
	was, again := r.seen[e.path]
	if again && was != e.kind {
		return ErrTypeSwitch.Because("entry %q is a %s and a %s", shown(e.path), was, e.kind)
	}
	if e.hard && e.target == e.path {
		return ErrLink.Because("hard link %q to itself", shown(e.path))
	}
	r.seen[e.path], e.again = e.kind, again
	return nil
}

func (r *rules) count(name string, size int64) error {
	r.contents.Entries++
	r.contents.Bytes += size
	switch {
	case r.contents.Entries > r.limits.Entries:
		return ErrLimit.Because("the archive has more than %d entries, at %q", r.limits.Entries, shown(name))
	case r.contents.Bytes > r.limits.Bytes:
		return ErrLimit.Because("the archive has more than %d bytes, at %q", r.limits.Bytes, shown(name))
	}
	return nil
}

// shown shortens a name for a message.
func shown(name string) string {
	const most = 200
	if len(name) > most {
		return name[:most] + "…"
	}
	return name
}
