#!/bin/sh
# Boots systemd as process 1 of new namespaces, over this machine's root directory: changes are kept in memory,
# and no unit of this machine is started. The script DIRECTORY/prepare gets the new root directory as its
# argument before. Run it as root:
#   unshare --fork --pid --mount --net --uts --ipc --kill-child sh boot.sh DIRECTORY
set -eu
directory=$1 root=$1/root
if [ "${2-}" != booting ]; then
    mount --make-rprivate /
    mkdir "$directory/memory" "$directory/cgroup" "$root"
    mount -t cgroup2 cgroup2 "$directory/cgroup"
    group=$directory/cgroup/widget-catalog-boot-$(basename "$directory")
    mkdir "$group"
    echo 0 > "$group/cgroup.procs"
    exec unshare --cgroup sh "$0" "$directory" booting
fi
mount -t tmpfs tmpfs "$directory/memory"
mkdir "$directory/memory/changes" "$directory/memory/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$directory/memory/changes,workdir=$directory/memory/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for path in run tmp dev; do
    mount -t tmpfs -o mode=755 tmpfs "$root/$path"
done
chmod 1777 "$root/tmp"
mkdir -m 1777 "$root/dev/shm"
mkdir "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for name in null zero full random urandom tty; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mount -o bind,ro "$root/proc/sys" "$root/proc/sys"
rm -rf "$root/etc/systemd/system" "$root/etc/fstab"
mkdir "$root/etc/systemd/system"
# In place of all that sets up a machine.
rm -rf "$root/usr/lib/systemd/system/sysinit.target.wants"
printf '[Unit]\nWants=systemd-journald.service\n' > "$root/etc/systemd/system/sysinit.target"
sh "$directory/prepare" "$root"
cd "$root"
pivot_root . mnt
umount -l mnt
exec env -i container=test PATH="$PATH" /lib/systemd/systemd --system --unit=basic.target --show-status=no
