//go:build linux

package lab

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// flushConntrack empties the table of connections of the calling thread's
// namespace: one netlink message, IPCTNL_MSG_CT_DELETE without a filter, as
// `conntrack -F` sends it.
func flushConntrack() error {
	const (
		deleteAll = 1<<8 | 2 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE
		length    = unix.SizeofNlMsghdr + 4
	)
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("opening a netlink socket: %w", err)
	}
	defer unix.Close(socket)
	request := make([]byte, length) // its last four bytes, struct nfgenmsg, are zero: all families
	binary.NativeEndian.PutUint32(request, length)
	binary.NativeEndian.PutUint16(request[4:], deleteAll)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending to netfilter: %w", err)
	}
	answer := make([]byte, 512)
	n, _, err := unix.Recvfrom(socket, answer, 0)
	if err != nil {
		return fmt.Errorf("receiving from netfilter: %w", err)
	}
	if n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("netfilter answered %d bytes", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return fmt.Errorf("netfilter: %w", unix.Errno(-code))
	}
	return nil
}
