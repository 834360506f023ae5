#!/usr/bin/env perl
# Prints src/lmdeploy/text/unicode/unicode_recent.inc: the characters of Unicode 9 and of 10 to 14, by Perl's own
# tables (Perl 5.36 has Unicode 14; later ones are in unicode_additions.inc).
use strict;
use warnings;
use Unicode::UCD qw(prop_invmap);

my ($starts, $ages) = prop_invmap("age");
my @run;
print "// Made by tools/make_unicode_recent.pl: {first, last, 9 or 10 for later}, in order.\n";
for my $i (0 .. $#$starts) {
  my $last = ($i < $#$starts ? $starts->[$i + 1] : 0x110000) - 1;
  next unless $ages->[$i] =~ /^V?(\d+)[._]/ && $1 >= 9;
  my $since = $1 >= 10 ? 10 : 9;
  if (@run && $run[1] + 1 == $starts->[$i] && $run[2] == $since) { $run[1] = $last; next; }
  printf "{0x%X, 0x%X, %d},\n", @run if @run;
  @run = ($starts->[$i], $last, $since);
}
printf "{0x%X, 0x%X, %d},\n", @run;
